package serve

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Limits bound what applications can have. Each field's zero value is its default.
type Limits struct {
	Clients int // attached at the same time; 0: 64
	// Of each application:
	PDs, SRQs, MWs, DMs, Memories int // 0: 256 each
	MRs                           int // 0: 4096
	CQs, QPs                      int // 0: 1024 each
	AHs                           int // 0: 4096
	Listeners, Requests           int // services, and requests of peers that wait for an answer; 0: 64 each
	// Waits are calls that wait at the same time; 0: 256.
	Waits int
	// Bytes of memory that it may have mapped, registered or not; 0: 16 GiB. Pages count for the
	// machine when they are used.
	Bytes int64
	// QueueBytes bound the work queues and completion queues that the NIC keeps for it; 0: 256 MiB.
	QueueBytes int64
	// Shared regions of all applications together; 0: 64.
	Shared int
}

func (l Limits) withDefaults() Limits {
	set := func(def int, fields ...*int) {
		for _, f := range fields {
			if *f == 0 {
				*f = def
			}
		}
	}
	set(64, &l.Clients, &l.Listeners, &l.Requests, &l.Shared)
	set(256, &l.PDs, &l.SRQs, &l.MWs, &l.DMs, &l.Memories, &l.Waits)
	set(1024, &l.CQs, &l.QPs)
	set(4096, &l.MRs, &l.AHs)
	l.QPs = min(l.QPs, ring.MaxBells/2)
	l.CQs, l.SRQs = min(l.CQs, ring.MaxBells/4), min(l.SRQs, ring.MaxBells/8)
	if l.Bytes == 0 {
		l.Bytes = 16 << 30
	}
	if l.QueueBytes == 0 {
		l.QueueBytes = 256 << 20
	}
	return l
}

// kind is a kind of object that is counted.
type kind int

const (
	kindPD kind = iota
	kindMR
	kindMemory
	kindMW
	kindDM
	kindAH
	kindCQ
	kindSRQ
	kindQP
	kindListener
	kindRequest
	kinds
)

var kindNames = [kinds]string{
	"protection domains", "memory regions", "memories", "memory windows", "device memories", "address handles",
	"completion queues", "shared receive queues", "queue pairs", "listeners", "connection requests",
}

func (l *Limits) of(k kind) int {
	return [kinds]int{l.PDs, l.MRs, l.Memories, l.MWs, l.DMs, l.AHs, l.CQs, l.SRQs, l.QPs, l.Listeners, l.Requests}[k]
}

// limitError says which limit was reached.
func limitError(op string, format string, args ...any) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrLimit, Detail: fmt.Sprintf(format, args...)}
}
