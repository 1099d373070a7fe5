package interop_test

import "time"

// An end is one side of a cell of the matrix: a queue pair of one of the two NICs, with its memory,
// an array of slots. The messages of a cell are numbered from 0; message m uses slot m on both
// sides, so no slot is used twice, and all can be compared afterwards. Slots are filled with 0xee
// at first.
type end interface {
	// open makes queue pair and memory.
	open(o opening) (address, error)
	// connect takes the queue pair to RTS.
	connect(to address, p params) error
	// fill writes the pattern of each message into its slot.
	fill(sizes []int, seed int) error
	// recv posts receives of size bytes into slots from first on.
	recv(first, count, size int) error
	// run posts the messages, at most depth at a time, and returns their completions.
	run(w work) ([]completion, error)
	// wait returns the completions of receives: count of them, or fewer when time is up.
	wait(count int, limit time.Duration) ([]completion, error)
	// check returns the slots with other contents than their message, followed by 0xee.
	check(sizes []int, seed int) ([]int, error)
	// word returns the first word of count slots, after storing one in slot 0 if store is not nil.
	word(store *uint64, count int) ([]uint64, error)
	// close destroys the queue pair and the memory.
	close() error
}

// opening describes queue pair and memory of an end.
type opening struct {
	Slot  int    `json:"slot"`  // bytes
	Slots int    `json:"slots"` // messages
	Type  string `json:"type"`  // rc
	GID   int    `json:"gid"`   // index of the guest's address
}

// address is the part of an end that the other end needs in order to connect.
type address struct {
	QPN  uint32 `json:"qpn"`
	GID  string `json:"gid"`
	Addr uint64 `json:"addr"`
	RKey uint32 `json:"rkey"`
}

// params are the attributes of a connection; the PSNs are this end's.
type params struct {
	MTU      int    `json:"mtu"`
	SendPSN  uint32 `json:"sq_psn"`
	RecvPSN  uint32 `json:"rq_psn"`
	RdAtomic int    `json:"rd_atomic"`
	Timeout  uint8  `json:"timeout"`
	Retry    uint8  `json:"retry"`
	RNRRetry uint8  `json:"rnr_retry"`
	MinRNR   uint8  `json:"min_rnr"`
}

// work describes the requests of an initiator: one message for each size.
type work struct {
	Op     string `json:"op"`
	Sizes  []int  `json:"sizes"`
	Depth  int    `json:"depth"`
	Pieces int    `json:"pieces"` // elements of the gather or scatter list
	Addr   uint64 `json:"addr"`   // bytes of the target's memory
	Stride int    `json:"stride"` // bytes between the starts of its slots
	RKey   uint32 `json:"rkey"`
	Imm    uint32 `json:"imm"`   // immediate data of message 0; each further message has one more
	First  uint64 `json:"first"` // CAS compares with First+m and swaps in First+m+1
	Add    uint64 `json:"add"`   // FAA adds it each time
	// Limit is how long to wait for one completion, in seconds.
	Limit float64 `json:"limit"`
}

// completion is a work completion that an end has polled.
type completion struct {
	ID     uint64 `json:"id"`
	Status int    `json:"status"` // status of ibv_wc_status
	Len    uint32 `json:"len"`
	Imm    uint32 `json:"imm"`
}

// pattern returns the bytes of message m: byte i is i*7 + (i>>8)*13 + m*31 + seed.
func pattern(b []byte, m, seed int) {
	k := m*31 + seed
	for i := range b {
		b[i] = byte(i*7 + (i>>8)*13 + k)
	}
}

// empty is the value of all bytes of memory at first.
const empty = 0xee
