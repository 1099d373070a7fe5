package sherman

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// maker has a connection to each memory server. Format and BulkLoad use it; no client may use the
// tree meanwhile.
type maker struct {
	cfg     Config
	fab     *remotemem.Fabric
	servers []netip.Addr
	mem     []memservice.Memory
	super   layout.Superblock
	buf     int
}

// newMaker connects to all servers. buf is the size in bytes of the buffer to register.
func newMaker(cfg Config, servers []netip.Addr, buf int, deadline clock.Time) (_ *maker, err error) {
	if len(servers) < 1 || len(servers) > layout.MaxServers {
		return nil, fmt.Errorf("sherman: %d memory servers; want 1 to %d", len(servers), layout.MaxServers)
	}
	m := &maker{cfg: cfg, servers: servers, mem: make([]memservice.Memory, len(servers)), buf: buf}
	if m.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: buf}); err != nil {
		return nil, err
	}
	defer kv.CloseAfter(&err, m.fab)
	for i, addr := range servers {
		_, err := m.fab.AddPeer(addr, 0, func(qp verbs.QP, until clock.Time) (err error) {
			m.mem[i], err = memservice.DialOwned(cfg.Manager, qp, addr, cfg.Params, memservice.Claim{Replaces: m.mem[i].Conn}, until)
			return err
		})
		if err == nil {
			err = m.retried(deadline, func() error { return m.fab.Open(i, deadline) })
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// retried repeats f until it succeeds or the deadline passes. f must be safe to repeat.
func (m *maker) retried(deadline clock.Time, f func() error) error {
	for {
		err := f()
		if err == nil || errors.Is(err, verbs.ErrClosed) {
			return err
		}
		if m.fab.Runtime().Now() >= deadline {
			return kv.TimedOut(err)
		}
		m.fab.Runtime().Sleep(pause)
	}
}

func (m *maker) target(i int, off uint64) remotemem.Target {
	return remotemem.Target{Peer: i, Addr: m.mem[i].Addr + off, RKey: m.mem[i].RKey}
}

// do executes the operation that prepare prepares, which must be safe to repeat.
func (m *maker) do(deadline clock.Time, prepare func(o *remotemem.Op)) error {
	return m.retried(deadline, func() error {
		var o remotemem.Op
		prepare(&o)
		return m.fab.Do(deadline, &o)
	})
}

func (m *maker) write(t remotemem.Target, b []byte, deadline clock.Time) error {
	if err := m.fab.MR().WriteAt(b, 0); err != nil {
		return err
	}
	return m.do(deadline, func(o *remotemem.Op) { m.fab.Write(o, t, 0, len(b)) })
}

func (m *maker) put(i int, off uint64, b []byte, deadline clock.Time) error {
	return m.write(m.target(i, off), b, deadline)
}

func (m *maker) get(i int, off uint64, b []byte, deadline clock.Time) error {
	err := m.do(deadline, func(o *remotemem.Op) { m.fab.Read(o, m.target(i, off), 0, len(b)) })
	if err == nil {
		err = m.fab.MR().ReadAt(b, 0)
	}
	return err
}

// close ends the connections and asks the servers to free their queue pairs.
func (m *maker) close() error {
	err := m.fab.Close()
	for i, addr := range m.servers {
		// if this fails, the server frees its queue pair later
		_ = memservice.End(m.cfg.Context, m.cfg.Manager, addr, m.mem[i].Conn, m.fab.Runtime().Now().Add(farewellTimeout))
	}
	return err
}

// zeros is the number of bytes that one WRITE clears.
const zeros = 64 << 10

// Format makes an empty tree on memory servers, whatever they contain. On each server it first
// clears the superblock and fences the clients of an earlier tree: none of their requests arrives
// later, and no client of the new tree gets one of their owner numbers. The operations of the
// earlier clients end with kv.ErrLost.
func Format(cfg Config, servers []netip.Addr, f FormatConfig, deadline clock.Time) (_ layout.Superblock, err error) {
	m, err := newMaker(cfg, servers, max(zeros, layout.MaxPage), deadline)
	if err != nil {
		return layout.Superblock{}, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	s, err := m.plan(f)
	if err != nil {
		return layout.Superblock{}, err
	}
	root := layout.At(0, s.FirstChunk())
	for i := range servers {
		s.Server, s.Len = i, uint64(m.mem[i].Len)
		if err := s.Validate(); err != nil {
			return layout.Superblock{}, err
		}
		if err := m.clear(i, &s, deadline); err != nil {
			return layout.Superblock{}, err
		}
	}
	page, b := layout.Page{}, make([]byte, s.Shape.Page)
	page.Init(s.Shape, b, layout.Header{Highest: layout.MaxKey, Self: root, Generation: s.Generation})
	err = m.put(0, root.Offset(), b, deadline)
	for i := range servers {
		first := s.FirstChunk()
		if i == 0 {
			first += uint64(s.Shape.Page)
		}
		err = errors.Join(err, m.putWord(i, layout.AllocWord, first, deadline))
	}
	err = errors.Join(err, m.putWord(0, layout.RootWord, uint64(root), deadline))
	for i := range servers { // the superblocks come last: before that no client opens the tree
		s.Server, s.Len = i, uint64(m.mem[i].Len)
		err = errors.Join(err, m.put(i, 0, s.AppendTo(nil), deadline))
	}
	s.Server, s.Len = 0, uint64(m.mem[0].Len)
	return s, err
}

func (m *maker) putWord(i int, off, word uint64, deadline clock.Time) error {
	if err := m.fab.MR().Store64(0, word); err != nil {
		return err
	}
	return m.do(deadline, func(o *remotemem.Op) { m.fab.Write(o, m.target(i, off), 0, 8) })
}

// plan makes the superblock of the new tree, with defaults for the fields of f that are zero.
func (m *maker) plan(f FormatConfig) (layout.Superblock, error) {
	s := layout.Superblock{
		Shape: f.Shape.WithDefaults(), Servers: len(m.servers), Locks: f.Locks, HostLocks: f.HostLocks || f.PageLocks, PageLocks: f.PageLocks, Chunk: f.Chunk, Generation: f.Generation,
	}
	least := m.mem[0].Region.Len
	for i := range m.mem {
		least = min(least, m.mem[i].Region.Len)
	}
	if s.PageLocks {
		s.Locks = 1
	}
	if s.Locks == 0 {
		s.Locks = layout.DefaultLocks
		for i := range m.mem {
			if !s.HostLocks {
				s.Locks = min(s.Locks, m.mem[i].Locks.Len/8)
			}
		}
		if s.HostLocks {
			s.Locks = min(s.Locks, least/16/8) // at most a sixteenth of the memory
		}
	}
	for i := range m.mem {
		if !s.HostLocks && (m.mem[i].Locks.Len < 8*s.Locks || s.Locks == 0) {
			return s, fmt.Errorf("memory server %v has %d bytes of NIC memory for locks, the tree needs %d: use fewer locks, or locks in host memory",
				m.servers[i], m.mem[i].Locks.Len, 8*s.Locks)
		}
	}
	if s.Chunk == 0 {
		for s.Chunk = layout.DefaultChunk; s.Chunk > max(layout.MinChunk, s.Shape.Page) && s.Chunk > least/64; {
			s.Chunk /= 2
		}
	}
	for s.Generation == 0 {
		s.Generation = m.fab.Runtime().Rand().Uint64()
	}
	return s, nil
}

// clear removes the old tree from server i. First it clears the superblock, so that no client opens
// the tree. Then it fences the old clients. At last it clears the other words in front of the
// locks, except the owner word, and all locks.
func (m *maker) clear(i int, s *layout.Superblock, deadline clock.Time) error {
	b := make([]byte, zeros)
	err := m.put(i, 0, b[:layout.SuperblockLen], deadline)
	if err == nil {
		err = m.retire(i, deadline)
	}
	const owners = layout.OwnerWord
	if err == nil {
		err = m.put(i, layout.SuperblockLen, b[:owners-layout.SuperblockLen], deadline)
	}
	if err == nil {
		err = m.put(i, owners+8, b[:layout.LocksAt-owners-8], deadline)
	}
	if err != nil {
		return err
	}
	locks, t := 8*s.Locks, remotemem.Target{Peer: i, Addr: m.mem[i].Locks.Addr, RKey: m.mem[i].Locks.RKey}
	if s.HostLocks {
		t = m.target(i, layout.LocksAt)
	}
	for off := 0; off < locks; off += zeros {
		to := remotemem.Target{Peer: i, Addr: t.Addr + uint64(off), RKey: t.RKey}
		if err := m.write(to, b[:min(zeros, locks-off)], deadline); err != nil {
			return err
		}
	}
	return nil
}

// maxOwner is greater than every owner number that clients get. If the owner word has a larger
// value, no tree has written it.
const maxOwner = 1 << 31

// retire fences every owner that the old tree has had on server i. Then it sets the owner word,
// which has the last owner number that was given out, to the largest number of a fenced owner. So
// no client of the new tree gets the number of an old one. Clients may take numbers meanwhile.
// Therefore retire repeats both steps until the word does not change. It lowers the word only if no
// tree has written it.
func (m *maker) retire(i int, deadline clock.Time) error {
	for {
		was, err := m.word(i, layout.OwnerWord, deadline)
		if err != nil {
			return err
		}
		upTo := uint32(0)
		if was <= maxOwner {
			upTo = uint32(was)
		}
		var last uint32
		err = m.retried(deadline, func() (err error) {
			last, err = memservice.Retire(m.cfg.Context, m.cfg.Manager, m.servers[i], upTo, deadline)
			return err
		})
		if err != nil || uint64(last) == was {
			return err
		}
		if last >= maxOwner {
			return fmt.Errorf("memory server %v has no owner numbers left for clients: restart it", m.servers[i])
		}
		// The next iteration of the loop reads whether the compare-and-swap succeeded.
		_ = m.do(deadline, func(o *remotemem.Op) { m.fab.CompareSwap(o, m.target(i, layout.OwnerWord), was, uint64(last), 0) })
	}
}

func (m *maker) word(i int, off uint64, deadline clock.Time) (uint64, error) {
	if err := m.do(deadline, func(o *remotemem.Op) { m.fab.Read(o, m.target(i, off), 0, 8) }); err != nil {
		return 0, err
	}
	return m.fab.MR().Load64(0)
}

var errNotEmpty = fmt.Errorf("the tree is not empty: format it first: %w", kv.ErrExists)
