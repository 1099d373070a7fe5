// Package nic is the connectionless NIC of the paper 1RMA (SIGCOMM 2020) as a sans-I/O machine. Its
// one-sided operations have at most 4096 bytes, are encrypted, and are independent of each other.
// There are no connections, no order, and no retransmission. Each operation ends within a known
// time, and software above the NIC decides what to try again.
//
// The caller passes frames and the time. The machine appends frames to a batch of its caller, and
// says when it must be called next, as softrnic/engine does:
//
//	Frame(now, port, frame, out)   a frame has arrived
//	Tick(now, out)                 Deadline has come
//	Deadline()                     also changes when Portal.Issue is called
//
// The receiver of bytes decides when they may be sent, by its solicitation window. The window
// limits how many inbound bytes are requested and have not arrived yet. A READ command waits in one
// of two FIFOs until the solicitation window has 4096 bytes free. It waits for 4096 bytes whatever
// its size, so that small operations cannot starve large ones. Then its size is debited and its
// request is sent. The request of a WRITE asks the target to read the data: the target queues the
// request in its own FIFOs, under its own window, and then pulls the data. There is a FIFO for each
// class of service. If both FIFOs have entries, class 0 gets four turns for each turn of class 1.
//
// Bounds, with D the dispatch timeout and T the timeout: a READ ends within D + T, a WRITE or REKEY
// within T + T·33/32. The target of a WRITE writes no byte later than T after it has sent its pull.
// The initiator counts T·33/32 from the arrival of the pull, so it ends later than the target even
// if their clocks differ by up to 3 %. A WRITE that has ended as TIMEOUT changes no byte of the
// target's memory any more. That holds against loss, delay, copies and replays, because the
// initiator serves one pull of each command, and the target drops data that arrive after its
// timeout.
//
// A data message of a READ or WRITE tears no word, which is 8 aligned bytes of memory: the NIC
// loads or stores each word as a whole, whatever the offset and the length, so that programs can
// share words with it. The order of the words is not defined. If the offset is no multiple of 8
// and the operation needs several messages, a word that is in two of them is loaded or stored in
// two parts. If a WRITE has only a part of its first or last word, that part may be stored byte by
// byte.
//
// Completions are in a queue of the NIC or, after Portal.Complete, in a ring in host memory that the
// program polls.
//
// Keys: a region has a key K_r. A process may use the region if it has K_d = AES(K_r, address of
// its NIC, its PID, the operation). Messages are sealed by AES-GCM under K_d. The initialisation
// vector is the sender's message counter and address. The vector of the operation's previous
// message is additional authenticated data. The upper 24 bits of the counter are Config.Epoch, the
// number of this incarnation of the NIC.
package nic
