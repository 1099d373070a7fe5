package verbs

// RingInit describes a send ring. Its entries are send work requests in registered memory, which
// other work requests can modify. Package sendring has the layout and the meaning of the entries.
type RingInit struct {
	// Addr and LKey name the first block, in a region of the queue pair's protection domain.
	Addr uint64
	LKey uint32
	// Blocks is the number of 64-byte blocks, a power of two up to 32768.
	Blocks int
	// Managed: the limit, up to which entries may be executed, is moved by an ENABLE instead of the
	// doorbell.
	Managed bool
	// Checked: the NIC refuses an entry whose opmod is not 0, whose index is not that of its
	// position, or whose queue pair number is not that of the ring. If Checked is false, the NIC
	// ignores these 48 bits, and a program may keep an operand there.
	Checked bool
	// Counts16: WAIT and ENABLE compare only the low 16 bits of their counts. So a loop can keep four
	// counts in one word.
	Counts16 bool
	// Prefetch is how many blocks the NIC reads at once, up to 64. 0 means 1 for a managed ring, else
	// 4.
	Prefetch int
	// Rate is the most entries that the NIC executes in a second, over times longer than some ten entries
	// take: a limit for a program of one client (RedN, section 3.5). 0 means as many as the NIC can.
	Rate int
}

// RingQP is a queue pair that can take its send work requests from a ring. Queue pairs of packages
// verbsengine and ipc can; in ipc, the ring is in memory that the program has registered.
type RingQP interface {
	QP
	// UseRing makes the queue pair execute entries of a ring, from index 0 on. From then on PostSend
	// fails. The queue pair must be of type RC, in RESET or INIT. At most MaxSendWR entries are in
	// flight.
	UseRing(RingInit) error
	// Doorbell tells the NIC that it may execute the entries in front of index limit. It fails with
	// ErrInvalid if the ring is managed.
	Doorbell(limit uint32) error
}

// CountedCQ is a completion queue whose completions the WAIT of a send ring can count.
type CountedCQ interface {
	CQ
	// Number returns the number by which a WAIT names the queue.
	Number() uint32
	// IgnoreOverrun makes the queue lose completions that do not fit, without an error. It is for a
	// queue whose completions are only counted and never polled.
	IgnoreOverrun() error
}
