/* Preloaded before libc: makes the N-th write, sync or truncation of a store's file fail. With CELLMATE_DISK_FULL,
   every later one fails, too, as long as the file it names exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long seen;

static int is_store_file(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, "/store.db") != NULL;
}

static int fails(int fd) {
  const char *at = getenv("CELLMATE_DISK_FAIL_AT"), *full = getenv("CELLMATE_DISK_FULL");
  int before = errno;
  if (!at || !is_store_file(fd)) {
    errno = before;
    return 0;
  }
  long number = atomic_fetch_add(&seen, 1) + 1, wanted = atol(at);
  int fault = full ? number >= wanted && access(full, F_OK) == 0 : number == wanted;
  if (!fault) {
    errno = before;
    return 0;
  }
  int mark = open(getenv("CELLMATE_DISK_MARK"), O_CREAT | O_WRONLY, 0600);
  if (mark >= 0) close(mark);
  errno = full ? ENOSPC : EIO;
  return 1;
}

#define REAL(type, name, parameters) \
  static type(*real) parameters; \
  if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, name);

ssize_t write(int fd, const void *bytes, size_t count) {
  REAL(ssize_t, "write", (int, const void *, size_t))
  return fails(fd) ? -1 : real(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  REAL(ssize_t, "pwrite", (int, const void *, size_t, off_t))
  return fails(fd) ? -1 : real(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  REAL(ssize_t, "pwrite64", (int, const void *, size_t, off64_t))
  return fails(fd) ? -1 : real(fd, bytes, count, at);
}

int fsync(int fd) {
  REAL(int, "fsync", (int))
  return fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
  REAL(int, "fdatasync", (int))
  return fails(fd) ? -1 : real(fd);
}

int ftruncate(int fd, off_t length) {
  REAL(int, "ftruncate", (int, off_t))
  return fails(fd) ? -1 : real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
  REAL(int, "ftruncate64", (int, off64_t))
  return fails(fd) ? -1 : real(fd, length);
}
