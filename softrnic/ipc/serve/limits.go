package serve

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Limits bound what applications can have. Each field's zero value is its default.
type Limits struct {
	Clients int // attached at the same time; 0: 64
	// Quotas of each application:
	PDs, SRQs, MWs, DMs, Memories int // 0: 256 each
	MRs                           int // 0: 4096
	CQs, QPs                      int // 0: 1024 each
	AHs                           int // 0: 4096
	Attachments                   int // of queue pairs to multicast groups; 0: 512
	// Manager has those of what makes connections.
	Manager ManagerLimits
	// Waits are calls that wait at the same time; 0: 256.
	Waits int
	// Bytes of memory that it may have mapped, registered or not; 0: 16 GiB. Pages count for the
	// machine when they are used.
	Bytes int64
	// QueueBytes bound the work queues and completion queues that the NIC keeps for it; 0: 256 MiB.
	QueueBytes int64
	// DeviceBytes of memory on the NIC; 0: as many as the reserve leaves.
	DeviceBytes int64
	// SharedBytes are in the shared regions of one user, which outlive applications; 0: 16 GiB.
	SharedBytes int64
	// Shared regions of all applications together; 0: 64.
	Shared int
	// Reserve is the share of each table of the NIC, in percent, that applications together leave
	// to the daemon; 0: 12, negative: none.
	Reserve int
	// ReservedDevice is the reserve of the NIC's memory, in bytes.
	ReservedDevice int64
}

// ManagerLimits are what an application may have of the connection manager; the last three are those of
// librdmacm.
type ManagerLimits struct {
	Listeners, Requests int // services, and requests of peers that wait for an answer; 0: 64 each

	IDs    int // identifiers, those of peers' requests included; 0: 4096
	Joins  int // memberships in multicast groups; 0: 512
	Events int // events that it has not read; 0: 16384
}

// Defaults of Limits that are not small numbers.
const (
	defaultBytes      = 16 << 30
	defaultQueueBytes = 256 << 20
	defaultReserve    = 12
)

func (l Limits) withDefaults() Limits {
	set := func(def int, fields ...*int) {
		for _, f := range fields {
			if *f == 0 {
				*f = def
			}
		}
	}
	setBytes := func(def int64, fields ...*int64) {
		for _, f := range fields {
			if *f == 0 {
				*f = def
			}
		}
	}
	set(64, &l.Clients, &l.Manager.Listeners, &l.Manager.Requests, &l.Shared)
	set(256, &l.PDs, &l.SRQs, &l.MWs, &l.DMs, &l.Memories, &l.Waits)
	set(512, &l.Attachments, &l.Manager.Joins)
	set(1024, &l.CQs, &l.QPs)
	set(4096, &l.MRs, &l.AHs, &l.Manager.IDs)
	set(16384, &l.Manager.Events)
	set(defaultReserve, &l.Reserve)
	l.QPs = min(l.QPs, ring.MaxBells/2)
	l.CQs, l.SRQs = min(l.CQs, ring.MaxBells/4), min(l.SRQs, ring.MaxBells/8)
	setBytes(defaultBytes, &l.Bytes, &l.SharedBytes)
	setBytes(defaultQueueBytes, &l.QueueBytes)
	setBytes(1<<62, &l.DeviceBytes)
	return l
}

// kind is a resource that a quota counts: objects of a kind, or bytes.
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
	kindAttachment
	kindListener
	kindRequest
	kindID
	kindJoin
	kindEvent
	kindMapped
	kindQueued
	kindDevice
	kinds
)

// quotas name each kind, in errors and status, and say what is counted.
var quotas = [kinds]struct{ name, what string }{
	kindPD:         {"pds", "protection domains"},
	kindMR:         {"mrs", "memory regions"},
	kindMemory:     {"memories", "memories"},
	kindMW:         {"mws", "memory windows"},
	kindDM:         {"dms", "device memories"},
	kindAH:         {"ahs", "address handles"},
	kindCQ:         {"cqs", "completion queues"},
	kindSRQ:        {"srqs", "shared receive queues"},
	kindQP:         {"qps", "queue pairs"},
	kindAttachment: {"attachments", "attachments to multicast groups"},
	kindListener:   {"listeners", "listeners"},
	kindRequest:    {"requests", "connection requests"},
	kindID:         {"ids", "identifiers of librdmacm"},
	kindJoin:       {"joins", "memberships in multicast groups"},
	kindEvent:      {"events", "events of librdmacm"},
	kindMapped:     {"memory", "bytes of memory"},
	kindQueued:     {"queueMemory", "bytes of queues"},
	kindDevice:     {"deviceMemory", "bytes of device memory"},
}

func (l *Limits) of(k kind) int64 {
	return [kinds]int64{
		kindPD: int64(l.PDs), kindMR: int64(l.MRs), kindMemory: int64(l.Memories), kindMW: int64(l.MWs), kindDM: int64(l.DMs),
		kindAH: int64(l.AHs), kindCQ: int64(l.CQs), kindSRQ: int64(l.SRQs), kindQP: int64(l.QPs),
		kindAttachment: int64(l.Attachments),
		kindListener:   int64(l.Manager.Listeners), kindRequest: int64(l.Manager.Requests),
		kindID: int64(l.Manager.IDs), kindJoin: int64(l.Manager.Joins), kindEvent: int64(l.Manager.Events),
		kindMapped: l.Bytes, kindQueued: l.QueueBytes, kindDevice: l.DeviceBytes,
	}[k]
}

// limitError says which limit was reached.
func limitError(op string, format string, args ...any) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrLimit, Detail: fmt.Sprintf(format, args...)}
}
