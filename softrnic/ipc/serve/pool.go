package serve

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// table is one of the NIC's tables, whose entries all applications and the daemon share; noTable
// means that a kind of objects is in none of them.
type table int

const (
	noTable table = iota
	tablePD
	tableRegion
	tableAH
	tableCQ
	tableSRQ
	tableXRCD
	tableQP
	tableAttachment
	tableID
	tableDevice
	tableFile // the daemon's own table of descriptors
	tables
)

// pool counts the entries of the NIC's tables that applications may use: all but those reserved for
// the daemon. An application gets further entries only if it then has at most as many entries as
// are still free. So a single application gets at most half of the pool, and two that grow together
// a third each; the next application still finds room. pool is safe for concurrent use.
type pool struct {
	size [tables]int64 // sizes of the tables without the reserve; never changes

	mu   sync.Mutex // guards the fields below
	free [tables]int64
}

// open sets the sizes of the pool: those of the NIC's tables, less what is reserved for the daemon.
func (p *pool) open(nic engine.Limits, l Limits) {
	reserve := int64(max(l.Reserve, 0))
	for t, n := range [tables]int{tablePD: nic.PDs, tableRegion: nic.MRs, tableAH: nic.AHs, tableCQ: nic.CQs, tableSRQ: nic.SRQs, tableXRCD: nic.PDs, tableQP: nic.QPs, tableAttachment: nic.Attachments, tableID: ucma.MaxIDs} {
		p.size[t] = int64(n) - (int64(n)*reserve+99)/100
	}
	p.size[tableDevice] = max(0, int64(nic.DeviceMemory)-l.ReservedDevice)
	p.size[tableFile] = filesForPrograms()
	p.free = p.size
}

// maxFiles bounds the number of descriptors if the process may have any number of them.
const maxFiles = 1 << 20

// filesForPrograms returns how many descriptors of the daemon the channels of all applications may
// take together: three quarters of those that it may have.
func filesForPrograms() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int64(min(l.Cur, maxFiles)) * 3 / 4
}

// take reserves n more entries of a table for an application that already has `own` entries. It
// returns how many entries are left free; ok is false if the application may not have so many.
func (p *pool) take(t table, own, n int64) (left int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.free[t] || own+n > p.free[t]-n {
		return p.free[t], false
	}
	p.free[t] -= n
	return p.free[t], true
}

func (p *pool) giveBack(t table, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[t] += n
}

// most returns how many objects of kind k one application may have. The NIC must have a table for
// objects of this kind.
func (p *pool) most(l *Limits, k kind) int { return int(min(l.of(k), p.size[quotas[k].table]/2)) }

// bound reduces the device attributes that a program reads to the program's quotas.
func (p *pool) bound(d verbs.DeviceAttr, l *Limits) verbs.DeviceAttr {
	d.MaxQP = p.most(l, kindQP)
	d.MaxSRQ = p.most(l, kindSRQ)
	d.MaxAH = p.most(l, kindAH)
	d.MaxDM = p.most(l, kindDevice)
	d.MaxAttachments = p.most(l, kindAttachment)
	return d
}

// QuotaStatus is the state of one quota.
type QuotaStatus struct {
	Name string `json:"name"`
	// Quota is the limit of one application. For "shared", the bytes of shared regions, it is the
	// limit of one user, and for "programs" the largest number of applications.
	Quota int64 `json:"quota"`
	// Used is the amount that all applications together use.
	Used int64 `json:"used"`
	// Pool is the limit of all applications together, if the NIC has a table for the resource; the
	// rest of the table is reserved for the daemon.
	Pool int64 `json:"pool,omitempty"`
	// Refused is how often an application was refused because of this quota.
	Refused uint64 `json:"refused,omitempty"`
}

func (s *Server) Quotas() []QuotaStatus {
	l := &s.bounds.Load().all
	out := make([]QuotaStatus, kinds, kinds+2)
	for k := range kinds {
		out[k] = QuotaStatus{Name: quotas[k].name, Quota: l.of(k), Refused: s.refusals.of(k)}
		if t := quotas[k].table; t != noTable {
			out[k].Pool = s.pool.size[t]
			out[k].Quota = int64(s.pool.most(l, k))
		}
	}
	s.mu.Lock()
	attached := s.programsAttached()
	for c := range s.clients {
		c.objects.mu.Lock()
		for k := range kinds {
			out[k].Used += c.objects.counts[k]
		}
		c.objects.mu.Unlock()
	}
	s.mu.Unlock()
	var shared int64
	for _, r := range s.Shared() {
		shared += int64(r.Length)
	}
	return append(out, QuotaStatus{Name: "shared", Quota: l.SharedBytes, Used: shared}, QuotaStatus{Name: "programs", Quota: int64(l.Clients), Used: int64(attached), Refused: s.refusals.of(kindProgram)})
}
