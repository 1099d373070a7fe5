package host

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a process.
const (
	defaultSlots = 64
	maxCalls     = 1024 // transfers in progress
)

type ProcessConfig struct {
	// Slots is how many operations of at most 4096 bytes may be in flight; 0 means 64.
	Slots int
	// Gate, if not nil, is called before the process begins a transfer or takes its result. While
	// it blocks, the process hangs.
	Gate func()
	// Control, if not nil, has the parameters of the process's congestion control, instead of those
	// in the NIC's Config.
	Control *executor.Config
}

// Process is a program's access to the NIC. Its methods may be called by several goroutines.
type Process struct {
	nic    *NIC
	pid    nic.PID
	gate   func()
	portal *nic.Portal
	// keys is the portal at which the process issues REKEYs. They are not transfers, so exec does
	// not handle them.
	keys *nic.Portal
	exec *executor.Executor
	// ends is the memory into which the NIC writes the completions of portal.
	ends *completions
	// regions are the regions that the process has registered and not deregistered.
	regions []*Region
	// calls are the transfers in progress, by tag. free has the tags that are not in use.
	calls []*Call
	free  []int
	// rekey is the REKEY in progress; nil means none.
	rekey *rekeying
	gone  bool // the process was closed, or its incarnation of the NIC has ended
}

// Open opens a process on the present incarnation of the NIC.
func (n *NIC) Open(cfg ProcessConfig) (p *Process, err error) {
	cfg.Slots = cmp.Or(cfg.Slots, defaultSlots)
	if cfg.Gate == nil {
		cfg.Gate = func() {}
	}
	n.exclusive(func(clock.Time) { p, err = n.open(cfg) })
	return p, err
}

func (n *NIC) open(cfg ProcessConfig) (*Process, error) {
	if n.machine == nil {
		return nil, opError("open", verbs.ErrClosed, "the NIC is down")
	}
	if n.last == 1<<pidBits-1 {
		return nil, opError("open", verbs.ErrLimit, "%d processes were opened since the NIC was started: start it again", n.last)
	}
	pid := nic.PID(n.epoch<<pidBits | (n.last + 1))
	portal, err := n.nic.Open(pid, cfg.Slots)
	if err != nil {
		return nil, err
	}
	keys, err := n.nic.Open(pid, 1)
	if err != nil {
		portal.Close()
		return nil, err
	}
	control := &n.cfg.Executor
	if cfg.Control != nil {
		control = cfg.Control
	}
	exec, err := executor.New(*control, portal)
	var ends *completions
	if err == nil {
		ends, err = n.complete(portal, cfg.Slots)
	}
	if err != nil {
		portal.Close()
		keys.Close()
		return nil, err
	}
	n.last++
	p := &Process{nic: n, pid: pid, gate: cfg.Gate, portal: portal, keys: keys, exec: exec, ends: ends}
	n.machine.Add(exec)
	n.procs[p] = struct{}{}
	return p, nil
}

// PID returns the process's number, from which keys for the process are derived.
func (p *Process) PID() nic.PID { return p.pid }

func (p *Process) Addr() (a netip.Addr) { return p.nic.Addr() }

// Policy returns the name of the policy that sets the process's congestion windows.
func (p *Process) Policy() (name string) {
	p.nic.exclusive(func(clock.Time) { name = p.exec.Policy() })
	return name
}

// SetPolicy replaces this policy while transfers go on; see executor.Executor.Use.
func (p *Process) SetPolicy(name string) (err error) {
	p.nic.exclusive(func(now clock.Time) { err = p.exec.Use(now, name) })
	return err
}

// Close ends the process. Its transfers end with verbs.ErrClosed, and its memory is no longer used
// when Close returns. A second Close does nothing.
func (p *Process) Close() {
	p.nic.exclusive(func(clock.Time) {
		if p.gone {
			return
		}
		p.portal.Close()
		p.keys.Close()
		p.nic.machine.Remove(p.exec)
		for _, r := range slices.Clone(p.regions) {
			_ = r.drop() // commands of closed portals do not use it any more
		}
		p.nic.forget(p.ends)
		delete(p.nic.procs, p)
		p.abandon()
		p.nic.steps++
	})
}

// abandon ends the calls in progress of a process that has ended: their Wait returns
// verbs.ErrClosed.
func (p *Process) abandon() {
	p.gone = true
	for _, c := range p.calls {
		if c != nil {
			c.state = callLost
			c.over.Store(true)
		}
	}
	clear(p.calls)
	p.rekey = nil
	p.regions = nil
}

// collect passes the results of ended transfers and REKEYs to their callers, and returns how many
// there were.
func (p *Process) collect() (ended int) {
	var out [16]executor.Result
	for {
		k := p.exec.Results(out[:])
		for i := range out[:k] {
			tag := int(out[i].Tag)
			c := p.calls[tag]
			p.calls[tag] = nil
			p.free = append(p.free, tag)
			c.result, c.state = out[i], callEnded
			c.local.transfers--
			c.over.Store(true)
		}
		ended += k
		if k < len(out) {
			return ended + p.collectRekey()
		}
	}
}

// Region is memory of a process that the NIC can use, and also peers that have a key for the
// region.
type Region struct {
	proc   *Process
	nic    *nic.Region
	mem    *mem.Region
	length int
	// transfers is how many transfers in progress use the region. That includes transfers without a
	// command at the NIC, which wait before they try an operation again.
	transfers int
}

// Register lets the NIC use buf, until Deregister or Close. access has the rights of peers
// (verbs.RemoteRead, verbs.RemoteWrite), and verbs.LocalWrite, which READs into buf need.
func (p *Process) Register(buf []byte, access verbs.Access) (r *Region, err error) {
	p.nic.exclusive(func(clock.Time) { r, err = p.register(buf, access) })
	return r, err
}

func (p *Process) register(buf []byte, access verbs.Access) (*Region, error) {
	if p.gone {
		return nil, opError("register", verbs.ErrClosed, "the process has ended")
	}
	if len(buf) == 0 {
		return nil, opError("register", verbs.ErrInvalid, "no bytes: pass at least one")
	}
	m, err := p.nic.table.Reg(p.nic.pd, buf, access)
	if err != nil {
		return nil, err
	}
	made, err := p.nic.nic.Register(m)
	if err != nil {
		_ = p.nic.table.Dereg(m) // the memory is not in use
		return nil, err
	}
	r := &Region{proc: p, nic: made, mem: m, length: len(buf)}
	p.regions = append(p.regions, r)
	return r, nil
}

// ID returns the number by which peers name the region.
func (r *Region) ID() nic.RegionID { return r.nic.ID() }

// ReadAt copies bytes of the region from an offset on, and WriteAt copies bytes into it. Peers may
// use the memory meanwhile. Both return an error when the region has ended.
func (r *Region) ReadAt(b []byte, off int) (err error) {
	r.proc.nic.exclusive(func(clock.Time) { err = r.mem.ReadAt(b, off) })
	return err
}

// WriteAt copies b into the region, from an offset on; see ReadAt.
func (r *Region) WriteAt(b []byte, off int) (err error) {
	r.proc.nic.exclusive(func(clock.Time) { err = r.mem.WriteAt(b, off) })
	return err
}

// Grant returns what process pid, on the NIC with address `to`, needs to use the region.
func (r *Region) Grant(to netip.Addr, pid nic.PID) (g Grant, err error) {
	return r.grant(nil, to, pid)
}

// GrantNext returns what the process will need when the key of the region has become k.
func (r *Region) GrantNext(k nic.Key, to netip.Addr, pid nic.PID) (g Grant, err error) {
	return r.grant(&k, to, pid)
}

// grant returns a grant under key k; nil means the present one.
func (r *Region) grant(k *nic.Key, to netip.Addr, pid nic.PID) (g Grant, err error) {
	if to = to.Unmap(); !to.Is4() {
		return g, opError("grant", verbs.ErrInvalid, "grant it to the IPv4 address of a NIC, not to %v", to)
	}
	err = opError("grant", verbs.ErrClosed, "the region or its process has ended")
	r.proc.nic.exclusive(func(clock.Time) {
		if r.proc.gone || !slices.Contains(r.proc.regions, r) {
			return
		}
		key := r.nic.Key()
		if k != nil {
			key = *k
		}
		g, err = grantOf(r.nic, key, r.length, to, pid), nil
	})
	return g, err
}

// SetKey replaces the region's key: the keys that were granted before are no longer valid.
func (r *Region) SetKey(k nic.Key) (err error) {
	err = opError("set key", verbs.ErrClosed, "the region or its process has ended")
	r.proc.nic.exclusive(func(clock.Time) {
		if !r.proc.gone && slices.Contains(r.proc.regions, r) {
			err = r.proc.nic.nic.SetKey(r.nic, k)
		}
	})
	return err
}

// Rotate replaces the region's key as SetKey does, but operations that the NIC has accepted under the former
// key go on.
func (r *Region) Rotate(k nic.Key) (err error) {
	err = opError("rotate", verbs.ErrClosed, "the region or its process has ended")
	r.proc.nic.exclusive(func(clock.Time) {
		if !r.proc.gone && slices.Contains(r.proc.regions, r) {
			err = r.proc.nic.nic.Rotate(r.nic, k)
		}
	})
	return err
}

// Deregister ends the region. It fails with verbs.ErrBusy while transfers of the process use it.
// When it returns nil, the NIC does not use the memory any more.
func (r *Region) Deregister() (err error) {
	r.proc.nic.exclusive(func(clock.Time) {
		if r.transfers > 0 && !r.proc.gone {
			err = opError("deregister", verbs.ErrBusy, "transfers use it: wait for them")
			return
		}
		err = r.drop()
	})
	return err
}

func (r *Region) drop() error {
	p := r.proc
	if p.gone || !slices.Contains(p.regions, r) {
		return nil // the memory is no longer in use
	}
	if err := p.nic.nic.Deregister(r.nic); err != nil {
		return err
	}
	p.regions = slices.DeleteFunc(p.regions, func(x *Region) bool { return x == r })
	return p.nic.table.Dereg(r.mem)
}

// completions is the host memory of a process's completions.
type completions struct {
	region *nic.Region
	mem    *mem.Region
}

// complete makes memory for the completions of a portal with slots, which the NIC writes from now on. Peers
// have no rights to it.
func (n *NIC) complete(p *nic.Portal, slots int) (*completions, error) {
	m, err := n.table.Reg(n.pd, make([]byte, slots*nic.CompletionLen), verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	r, err := n.nic.Register(m)
	if err == nil {
		if err = p.Complete(r, 0); err == nil {
			return &completions{r, m}, nil
		}
		_ = n.nic.Deregister(r) // no command uses it
	}
	_ = n.table.Dereg(m)
	return nil, err
}

// forget frees the memory of a portal that is closed.
func (n *NIC) forget(c *completions) {
	if n.nic.Deregister(c.region) == nil {
		_ = n.table.Dereg(c.mem) // nothing uses it
	}
}
