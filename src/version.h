#ifndef VERSION_H
#define VERSION_H

#define TRANSLATE_WORKER_VERSION "0.1.0"

#endif
