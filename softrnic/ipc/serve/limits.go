package serve

import (
	"cmp"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Limits are the quotas of applications. The zero value of a field means its default.
type Limits struct {
	Clients int // applications that are attached at the same time; 0 means 64
	// The quotas of each application. A queue pair of an unmodified program has a bell, and each
	// completion queue, queue pair and shared receive queue of any other application (see belled).
	PDs, SRQs, MWs, DMs, Memories int // 0 means 256 each; PDs is also the limit of XRC domains, and Memories is also the limit of an unmodified program's shares (see share), which have a count of their own
	MRs                           int // 0 means 16384
	CQs                           int // 0 means 4096: two for each queue pair
	QPs                           int // 0 means 2048; at most 4095
	AHs                           int // 0 means 4096
	Attachments                   int // attachments of queue pairs to multicast groups; 0 means 512
	// Manager has the quotas of what is for connections and events.
	Manager ManagerLimits
	// Waits is the number of calls that may wait at the same time; 0 means 256.
	Waits int
	// Bytes is the limit of Status.Bytes of an application, whether the application has registered
	// this memory or not; 0 means 16 GiB. Only used pages take memory of the machine.
	Bytes int64
	// QueueBytes is the most memory of the NIC that an application's work queues and completion
	// queues may have, in bytes; 0 means 4 GiB. It counts all of a queue's entries, but a queue takes
	// memory only for those that were used.
	QueueBytes int64
	// DeviceBytes is the most device memory that an application may have, in bytes; 0 means all
	// device memory that is not reserved for the daemon.
	DeviceBytes int64
	// SharedBytes is the most memory that the shared regions of one user may have, in bytes; 0
	// means 16 GiB. Shared regions survive applications.
	SharedBytes int64
	// Shared is the largest number of shared regions of all applications together; 0 means 64.
	Shared int
	// Reserve is the part of each table of the NIC, in percent, that is reserved for the daemon; 0
	// means 12, negative: none.
	Reserve int
	// ReservedDevice is the device memory reserved for the daemon, in bytes.
	ReservedDevice int64
}

// ManagerLimits are the quotas of an application for the connection manager, and for descriptors by
// which it is told of events. All but the first two are for unmodified programs.
type ManagerLimits struct {
	Listeners, Requests int // Listeners: services on which the application listens; Requests: peers' requests that it has not answered; 0 means 64 each

	IDs    int // librdmacm identifiers, including those of peers' requests; 0 means 4096
	Joins  int // memberships in multicast groups; 0 means 512
	Events int // events that the program has not read; 0 means 16384
	// Channels is the number of completion channels of libibverbs, or of event channels of librdmacm;
	// 0 means 65536. Each is a descriptor of the daemon, so an application gets at most half of the
	// descriptors that the daemon has for applications.
	Channels int
}

// Defaults of fields of Limits; defaultBytes is the default of Bytes and SharedBytes.
const (
	defaultBytes      = 16 << 30
	defaultQueueBytes = 4 << 30
	defaultReserve    = 12
	defaultChannels   = 1 << 16
)

func (l Limits) withDefaults() Limits {
	defaults(64, &l.Clients, &l.Manager.Listeners, &l.Manager.Requests, &l.Shared)
	defaults(256, &l.PDs, &l.SRQs, &l.MWs, &l.DMs, &l.Memories, &l.Waits)
	defaults(512, &l.Attachments, &l.Manager.Joins)
	defaults(2048, &l.QPs)
	defaults(4096, &l.CQs, &l.AHs, &l.Manager.IDs)
	defaults(16384, &l.MRs, &l.Manager.Events)
	defaults(defaultChannels, &l.Manager.Channels)
	defaults(defaultReserve, &l.Reserve)
	l.QPs = min(l.QPs, ring.MaxBells-1) // bell 0 is that of the page
	defaults(defaultBytes, &l.Bytes, &l.SharedBytes)
	defaults(defaultQueueBytes, &l.QueueBytes)
	defaults(1<<62, &l.DeviceBytes)
	return l
}

// bounds are the limits of applications: of those that use libibverbs (all), and of those that use
// package ipc (belled). They do not change; SetLimits makes new ones.
type bounds struct{ all, belled Limits }

func newBounds(l Limits) *bounds {
	l = l.withDefaults()
	return &bounds{l, l.belled()}
}

// SetLimits replaces the limits. Applications that are attached keep the limits of the time when they
// attached; Clients, Shared and SharedBytes apply at once. Reserve and ReservedDevice stay as they
// are, because they decide the sizes of the NIC's tables.
func (s *Server) SetLimits(l Limits) {
	now := s.bounds.Load().all
	l.Reserve, l.ReservedDevice = now.Reserve, now.ReservedDevice
	s.bounds.Store(newBounds(l))
}

// belled returns the limits of an application over package ipc. All its queues and queue pairs have
// bells, so each kind gets a part of them.
func (l Limits) belled() Limits {
	l.QPs = min(l.QPs, ring.MaxBells/2)
	l.CQs, l.SRQs = min(l.CQs, ring.MaxBells/4), min(l.SRQs, ring.MaxBells/8)
	return l
}

// defaults sets those of the fields to def that are 0.
func defaults[T int | int64](def T, fields ...*T) {
	for _, f := range fields {
		*f = cmp.Or(*f, def)
	}
}

// kind is a resource with a quota: a kind of objects, or an amount of bytes.
type kind int

const (
	kindPD kind = iota
	kindMR
	kindMemory
	kindShare
	kindMW
	kindDM
	kindAH
	kindCQ
	kindSRQ
	kindXRCD
	kindQP
	kindAttachment
	kindListener
	kindRequest
	kindID
	kindJoin
	kindEvent
	kindChannel
	kindMapped
	kindQueued
	kindDevice
	kinds
)

// quotas has for each kind the name in status output, the text in errors, and the NIC's table whose
// entries the objects take. Regions and windows share the table of keys.
var quotas = [kinds]struct {
	name, what string
	table      table
}{
	kindPD:         {"pds", "protection domains", tablePD},
	kindMR:         {"mrs", "memory regions", tableRegion},
	kindMemory:     {"memories", "memories", noTable},
	kindShare:      {"shares", "shares of its memory", noTable},
	kindMW:         {"mws", "memory windows", tableRegion},
	kindDM:         {"dms", "device memories", noTable},
	kindAH:         {"ahs", "address handles", tableAH},
	kindCQ:         {"cqs", "completion queues", tableCQ},
	kindSRQ:        {"srqs", "shared receive queues", tableSRQ},
	kindXRCD:       {"xrcds", "XRC domains", tableXRCD},
	kindQP:         {"qps", "queue pairs", tableQP},
	kindAttachment: {"attachments", "attachments to multicast groups", tableAttachment},
	kindListener:   {"listeners", "listeners", noTable},
	kindRequest:    {"requests", "connection requests", noTable},
	kindID:         {"ids", "identifiers of librdmacm", tableID},
	kindJoin:       {"joins", "memberships in multicast groups", noTable},
	kindEvent:      {"events", "events of librdmacm", noTable},
	kindChannel:    {"channels", "completion or event channels", tableFile},
	kindMapped:     {"memory", "bytes of memory", noTable},
	kindQueued:     {"queueMemory", "bytes of queues", noTable},
	kindDevice:     {"deviceMemory", "bytes of device memory", tableDevice},
}

func (l *Limits) of(k kind) int64 {
	return [kinds]int64{
		kindPD: int64(l.PDs), kindMR: int64(l.MRs), kindMemory: int64(l.Memories), kindShare: int64(l.Memories), kindMW: int64(l.MWs), kindDM: int64(l.DMs),
		kindAH: int64(l.AHs), kindCQ: int64(l.CQs), kindSRQ: int64(l.SRQs), kindXRCD: int64(l.PDs), kindQP: int64(l.QPs),
		kindAttachment: int64(l.Attachments),
		kindListener:   int64(l.Manager.Listeners), kindRequest: int64(l.Manager.Requests),
		kindID: int64(l.Manager.IDs), kindJoin: int64(l.Manager.Joins), kindEvent: int64(l.Manager.Events), kindChannel: int64(l.Manager.Channels),
		kindMapped: l.Bytes, kindQueued: l.QueueBytes, kindDevice: l.DeviceBytes,
	}[k]
}

func limitError(op string, format string, args ...any) error {
	return verbs.Errorf(op, verbs.ErrLimit, format, args...)
}
