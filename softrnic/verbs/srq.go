package verbs

// SRQInit are the creation attributes of a shared receive queue.
type SRQInit struct {
	MaxWR  int // 0 means 128
	MaxSGE int // 0 means 4
	// XRCD, if not nil, makes an XRC shared receive queue in this domain. CQ gets its completions; it
	// is set for such a queue alone.
	XRCD XRCD
	CQ   CQ
}

// SRQAttr has the attributes of a shared receive queue.
type SRQAttr struct {
	ID            uint32 // number of the queue in asynchronous events, and in requests of XRC
	MaxWR, MaxSGE int
	// Limit is the value that SetLimit has set. It is 0 if none is set, or if EventSRQLimit was raised
	// since.
	Limit int
	// Queued is the number of receives that no queue pair has taken.
	Queued int
}

// SRQ is a shared receive queue. A queue pair that was created with it takes a receive from it when
// a message begins. The completion goes to the receive CQ of this queue pair.
//
// A queue pair in the error state flushes only the receive that it is using, and raises
// EventQPLastWQE.
type SRQ interface {
	Query() (SRQAttr, error)
	// PostRecv queues receives. If one is refused, the error has its index; those before it are
	// queued.
	PostRecv(wr ...RecvWR) error
	// SetLimit arms EventSRQLimit. The event is raised once, when a queue pair takes a receive and
	// fewer than n remain. 0 disarms it.
	SetLimit(n int) error
	// Resize changes the capacity; queued receives and the limit stay. It fails with ErrInvalid if
	// more than maxWR receives are queued, or if the limit is higher than maxWR.
	Resize(maxWR int) error
	// Destroy ends the queue. It fails with ErrBusy while queue pairs use it.
	Destroy() error
}
