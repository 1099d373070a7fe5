package verbs

// RingInit describes a send ring: send work requests as entries in registered memory, which work
// requests can modify. Package sendring has the layout of the entries and says what they do.
type RingInit struct {
	// Addr and LKey name the first block, in a region of the queue pair's protection domain.
	Addr uint64
	LKey uint32
	// Blocks is the number of 64-byte blocks, a power of two up to 32768.
	Blocks int
	// Managed: an ENABLE moves the limit, not the doorbell.
	Managed bool
	// Checked: the NIC refuses entries whose opmod is not 0 or whose index or queue pair number are
	// not their own. Otherwise it ignores these 48 bits, and a program may keep an operand there.
	Checked bool
	// Counts16: WAIT and ENABLE compare the low 16 bits of their counts alone. So a loop can keep
	// four of them in one word.
	Counts16 bool
	// Prefetch is how many blocks are read at once, up to 64. 0 means 1 for a managed ring, else 4.
	Prefetch int
}

// RingQP is a queue pair that can take its send work requests from a ring: those of package
// verbsengine and of package ipc, whose ring lies in memory that a program has registered.
type RingQP interface {
	QP
	// UseRing makes the queue pair execute entries of a ring from index 0 on; PostSend is refused
	// from then on. The state is RESET or INIT, the type RC. At most MaxSendWR entries are in
	// flight.
	UseRing(RingInit) error
	// Doorbell says that the entries in front of index limit may be executed. It fails with
	// ErrInvalid if the ring is managed.
	Doorbell(limit uint32) error
}

// CountedCQ is a completion queue whose number and count the WAIT of a ring can name.
type CountedCQ interface {
	CQ
	// Number returns the number of the queue.
	Number() uint32
	// IgnoreOverrun makes the queue lose completions that do not fit, without an error: a queue
	// that is only counted is never polled.
	IgnoreOverrun() error
}
