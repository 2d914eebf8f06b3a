/* build/kafka_hold PORT TARGET FOLDER -- a proxy in front of a broker that holds single requests back and delivers them
 * late, whatever became of the client meanwhile: what a slow network or a stopped broker does to a commit.
 *
 * PORT, TARGET: ports of 127.0.0.1.  A file FOLDER/hold-API-MS made by somebody makes it take the next request of that
 * number in Kafka's protocol (26: EndTxn, 8: OffsetCommit, 28: TxnOffsetCommit), and what follows on its connection, MS
 * milliseconds later; the file is gone once it holds one.  Prints a line for each.  Ends with SIGTERM. */
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 64 << 20 };

struct link {
    int client, broker;
};

static const char *folder;

static bool read_all(int fd, void *to, size_t n)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = read(fd, (char *)to + have, n - have);
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = send(fd, (const char *)from + done, n - done, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

/* Milliseconds that this request is to wait, 0 = none; takes the order away. */
static long take_order(int api)
{
    long ms = 0;
    int number;
    char path[4096];
    const struct dirent *d;
    DIR *dir = opendir(folder);

    while (dir && ms == 0 && (d = readdir(dir))) {
        if (sscanf(d->d_name, "hold-%d-%ld", &number, &ms) == 2 && number == api) {
            snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
            if (unlink(path) == 0)
                break;
        }
        ms = 0;
    }
    if (dir)
        closedir(dir);
    return ms;
}

static void hold(int api, long ms)
{
    printf("held api=%d ms=%ld\n", api, ms);
    fflush(stdout);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); /* the delay itself */
    printf("delivered api=%d\n", api);
    fflush(stdout);
}

/* Request by request: four bytes of length, two of the request's number. */
static void *to_broker(void *arg)
{
    const struct link *l = arg;
    unsigned char *frame = malloc(MOST_BYTES);
    uint32_t n;

    while (frame && read_all(l->client, &n, sizeof n)) {
        size_t size = ntohl(n);
        long ms;

        if (size < 2 || size > MOST_BYTES - sizeof n || !read_all(l->client, frame + sizeof n, size))
            break;
        memcpy(frame, &n, sizeof n);
        if ((ms = take_order(frame[4] << 8 | frame[5])) > 0)
            hold(frame[4] << 8 | frame[5], ms);
        if (!write_all(l->broker, frame, size + sizeof n))
            break;
    }
    free(frame);
    shutdown(l->broker, SHUT_WR);
    return NULL;
}

/* Both directions of a connection; this thread takes the answers, and frees the link once both have ended. */
static void *serve(void *arg)
{
    struct link *l = arg;
    char buffer[65536];
    pthread_t other;
    ssize_t n;

    if (pthread_create(&other, NULL, to_broker, l) == 0) {
        while ((n = read(l->broker, buffer, sizeof buffer)) > 0)
            if (!write_all(l->client, buffer, (size_t)n))
                break; /* the client is gone: what is held is delivered all the same */
        shutdown(l->client, SHUT_RDWR);
        pthread_join(other, NULL);
    }
    close(l->client);
    close(l->broker);
    free(l);
    return NULL;
}

static int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int listen_on(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 64) != 0) {
        perror("kafka_hold: listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: kafka_hold PORT TARGET FOLDER\n");
        return 2;
    }
    folder = argv[3];
    for (int fd = listen_on(atoi(argv[1]));;) {
        struct link *l = calloc(1, sizeof *l);
        pthread_t t;

        if (!l)
            return 1;
        l->client = accept(fd, NULL, NULL);
        l->broker = l->client >= 0 ? dial(atoi(argv[2])) : -1;
        if (l->broker >= 0 && pthread_create(&t, NULL, serve, l) == 0) {
            pthread_detach(t);
            continue;
        }
        if (l->client >= 0)
            close(l->client);
        free(l);
    }
}
