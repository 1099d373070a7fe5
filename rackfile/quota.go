package rackfile

import (
	"errors"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/units"
)

// Bounds of quotas. maxPDs, maxRegions, maxQueues and maxSRQs are the sizes of a NIC's tables.
const (
	maxPrograms   = 1024
	maxPDs        = 1024
	maxRegions    = 65536
	maxQueues     = 16384
	maxSRQs       = 4096
	maxEvents     = 65536
	maxChannels   = 65536
	maxReserve    = 90
	maxQuotaBytes = 1 << 40
)

// Quota bounds what programs may use of a host's NIC. Zero means the default of the host's daemon.
type Quota struct {
	// Programs is how many programs may be attached at the same time.
	Programs int `json:"programs,omitempty"`
	// Numbers of objects that each program may have: protection domains, memory regions, memory
	// windows, address handles, completion queues, shared receive queues, queue pairs.
	PDs  int `json:"pds,omitempty"`
	MRs  int `json:"mrs,omitempty"`
	MWs  int `json:"mws,omitempty"`
	AHs  int `json:"ahs,omitempty"`
	CQs  int `json:"cqs,omitempty"`
	SRQs int `json:"srqs,omitempty"`
	QPs  int `json:"qps,omitempty"`
	// Attachments is how many attachments of queue pairs to multicast groups each program may have.
	Attachments int `json:"attachments,omitempty"`
	// Bounds of each program in librdmacm: its identifiers (IDs), its memberships in multicast
	// groups (Joins), and its events that it has not read (Events). Channels is how many completion
	// channels it may have, and how many event channels of librdmacm.
	IDs      int `json:"ids,omitempty"`
	Joins    int `json:"joins,omitempty"`
	Events   int `json:"events,omitempty"`
	Channels int `json:"channels,omitempty"`
	// Bytes that each program may have: mapped (Memory), in queues (QueueMemory), and in device
	// memory (DeviceMemory). Shared is how many bytes the shared regions of one user may have.
	Memory       int64 `json:"memory,omitempty"`
	QueueMemory  int64 `json:"queueMemory,omitempty"`
	DeviceMemory int64 `json:"deviceMemory,omitempty"`
	Shared       int64 `json:"shared,omitempty"`
	// Reserve is the part of each table of the NIC, in percent, that all programs together leave to
	// the daemon.
	Reserve int `json:"reserve,omitempty"`
}

func (d *decoder) quota(n ast.Node) (q Quota) {
	d.mapping(n, "quota", []entry{
		set(d, "programs", &q.Programs, number(1, maxPrograms)),
		set(d, "pds", &q.PDs, number(1, maxPDs)),
		set(d, "mrs", &q.MRs, number(1, maxRegions)),
		set(d, "mws", &q.MWs, number(1, maxRegions)),
		set(d, "ahs", &q.AHs, number(1, maxRegions)),
		set(d, "cqs", &q.CQs, number(1, maxQueues)),
		set(d, "srqs", &q.SRQs, number(1, maxSRQs)),
		set(d, "qps", &q.QPs, number(1, maxQueues)),
		set(d, "attachments", &q.Attachments, number(1, maxQueues)),
		set(d, "ids", &q.IDs, number(1, maxQueues)),
		set(d, "joins", &q.Joins, number(1, maxQueues)),
		set(d, "events", &q.Events, number(1, maxEvents)),
		set(d, "channels", &q.Channels, number(1, maxChannels)),
		set(d, "memory", &q.Memory, parseQuota),
		set(d, "queueMemory", &q.QueueMemory, parseQuota),
		set(d, "deviceMemory", &q.DeviceMemory, parseQuota),
		set(d, "shared", &q.Shared, parseQuota),
		set(d, "reserve", &q.Reserve, number(1, maxReserve)),
	})
	return q
}

// parseQuota reads a size in bytes, from 1 to maxQuotaBytes.
func parseQuota(s string) (int64, error) {
	n, err := units.ParseSize(s)
	switch {
	case err != nil:
		return 0, err
	case n == 0 || n > maxQuotaBytes:
		return 0, errors.New("take a size from 1B to " + units.FormatSize(maxQuotaBytes))
	}
	return n, nil
}
