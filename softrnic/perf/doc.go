// Package perf has the benchmark workloads: bandwidth and latency tests like those of perftest, a
// check of a path, and a soak that verifies every byte and every atomic. They are blocking code
// over verbs, rdmacm and memservice, so they run on a rack and in the simulator. Tests of one-sided
// operations need a memory service on the peer; SEND tests need the service of NewServer.
//
// Each word of a message depends on the number of the message and on the offset of the word, so
// that wrong, missing, stale or misplaced bytes are detected. The tests verify:
//
//   - WRITE: the messages of a chunk go to slots of their own and are then READ back and compared.
//     A bandwidth test does not count the time in which it reads back.
//   - READ: the peer's memory is filled by WRITEs first; consecutive messages read different slots,
//     so that a buffer with its old content is detected, too.
//   - SEND: the server compares the messages, in order, and counts them in words that the client
//     READs at the end.
//   - CAS and FAA: the original value of each is predicted, and the sum is read at the end. Both
//     reveal an atomic that was lost or executed twice.
//
// A latency test of WRITE, READ and atomics measures from the post to the completion; a latency
// test of SEND measures half of a round trip to a server that echoes.
package perf
