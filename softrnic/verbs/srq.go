package verbs

// SRQInit are the creation attributes of a shared receive queue.
type SRQInit struct {
	MaxWR  int // 0: 128
	MaxSGE int // 0: 4
}

// SRQAttr has the attributes of a shared receive queue.
type SRQAttr struct {
	ID            uint32 // in asynchronous events
	MaxWR, MaxSGE int
	// Limit is the limit that SetLimit has armed; 0: it has fired or was never armed.
	Limit int
	// Queued are the receives that no queue pair has taken.
	Queued int
}

// SRQ is a shared receive queue: queue pairs that were created with it take their receives from it,
// each when a message begins. Completions go to the receive CQ of the queue pair that took the
// receive.
//
// A queue pair in the error state flushes the receive that it has in use, and no other, and raises
// EventQPLastWQE.
type SRQ interface {
	Query() (SRQAttr, error)
	// PostRecv queues receives. On error the index says which one was refused; those before it are
	// queued.
	PostRecv(wr ...RecvWR) error
	// SetLimit arms EventSRQLimit: raised once when a queue pair takes a receive and leaves fewer
	// than n. 0 disarms.
	SetLimit(n int) error
	// Resize changes how many receives fit; those that are queued stay, and so does the limit.
	// ErrInvalid: more are queued, or the limit is higher.
	Resize(maxWR int) error
	// Destroy fails with ErrBusy while queue pairs use it.
	Destroy() error
}
