package fusee

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// memory is a client's access to the memory servers: a connection to each, and batches of
// operations that take one round trip.
type memory struct {
	cfg   Config
	rt    *kv.Timeline
	fab   *remotemem.Fabric
	links []link
	// id is the number of the client, under which it owns its connections; 0 means that it has no
	// number yet.
	id uint32
	// ops is the memory for the operations of a batch; the first n are in use. batch are the
	// operations that are prepared and not executed yet.
	ops   [maxOps]remotemem.Op
	batch []*remotemem.Op
	n     int
	// repeated is true if the servers may have executed an operation of the last batch more than
	// once. cost is what the present operation of the client has taken so far.
	repeated bool
	cost     kv.Cost
	// fenced is true if another client has taken this one for dead: no server accepts its number
	// from then on.
	fenced bool
	members
	pulse pulse
	// pulsate adds the sign of life of this client to a batch; nil means that the client shows
	// none.
	pulsate func()
}

// errFenced: another client has taken this one for dead.
var errFenced = errors.New("another client has taken this one for dead and has taken its blocks over")

// link is the connection to one memory server.
type link struct {
	mem memservice.Memory
	// boot is the boot number of the memory service whose memory belongs to the store; 0 means that
	// the client has not seen one.
	boot uint64
}

// Areas of the registered buffer.
const (
	// maxOps is the largest number of operations of a batch. With two backups a batch has room for
	// a sign of life, and for operations on all slots of groupsAtOnce groups, which a client splits
	// at a time.
	maxOps = 128
	// atWords: a word for each operation of a batch, for the value that a CAS or FETCH_ADD finds.
	atWords = 0
	// atBuckets: the buckets of a key, twice, as READs before and after the CAS of the primary have
	// found them. atLog: bytes for a log entry, and single words.
	atBuckets = atWords + 8*maxOps
	bucketsIn = 2
	atLog     = atBuckets + bucketsIn*sightLen
	logLen    = 64
	// atFrees: the values that the FETCH_ADDs of frees in flight find.
	atFrees = atLog + logLen
	// atViews: the superblocks and the words of membership of the servers.
	atViews = atFrees + 8*freeBatch
	viewLen = layout.MasterWord + 8
	// atBeat: the word by which the client shows that it is alive.
	atBeat = atViews + viewLen*layout.MaxServers
	// atHeartbeats: the words of master and standby that were read from each server. atTold: those
	// that this client writes. atOut: the object that the client writes.
	atHeartbeats = atBeat + 8
	atTold       = atHeartbeats + heartbeatLen*layout.MaxServers
	atOut        = atTold + heartbeatLen
	maxOut       = layout.MaxUnits * layout.Unit
	// atIn: objects and other parts of the store that were read.
	atIn      = atOut + maxOut
	maxIn     = 4
	bufferLen = atIn + maxIn*maxOut
)

func (m *memory) open(cfg Config, deadline clock.Time) (err error) {
	m.cfg, m.rt = cfg, kv.NewTimeline(cfg.Context.Runtime())
	m.links = make([]link, len(cfg.Servers))
	if m.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: bufferLen}); err != nil {
		return err
	}
	for i := range cfg.Servers {
		if _, err := m.fab.AddPeer(cfg.Servers[i], 0, m.dial(i)); err != nil {
			return errors.Join(err, m.fab.Close())
		}
	}
	return nil
}

// reach connects to server i. It repeats failed attempts until the deadline, unless the error shows
// that further ones cannot succeed.
func (m *memory) reach(i int, deadline clock.Time) error {
	for {
		err := m.fab.Open(i, deadline)
		if err == nil {
			return nil
		}
		if errors.Is(err, errReborn) {
			return err
		}
		if err := m.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// dial returns the function that connects to server i, as the owner with the client's number. The
// function makes the server end the previous connection: requests in flight there are not executed
// after that.
func (m *memory) dial(i int) remotemem.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		l := &m.links[i]
		claim := memservice.Claim{Owner: m.id, Replaces: l.mem.Conn}
		got, err := memservice.DialOwned(m.cfg.Manager, qp, m.cfg.Servers[i], m.cfg.Params, claim, until)
		switch {
		case errors.Is(err, memservice.ErrFenced):
			m.fenced = true
			return errFenced
		case err != nil:
			return err
		case l.boot != 0 && l.boot != got.Boot:
			return errReborn
		}
		l.mem, l.boot = got, got.Boot
		return nil
	}
}

// target returns the remote address of an offset in the region of server i.
func (m *memory) target(i int, off uint64) remotemem.Target {
	l := &m.links[i]
	return remotemem.Target{Peer: i, Addr: l.mem.Addr + off, RKey: l.mem.RKey}
}

// next returns the next operation of the batch that is being prepared. word is the offset of its
// word in the buffer, to which the NIC writes the value that a CAS or FETCH_ADD finds.
func (m *memory) next() (o *remotemem.Op, word int) {
	o, word = &m.ops[m.n], atWords+8*m.n
	m.n++
	m.batch = append(m.batch, o)
	return o, word
}

// room returns how many more operations fit into the batch.
func (m *memory) room() int { return maxOps - m.n }

// read adds a READ of n bytes to the batch; `to` is where they go in the buffer.
func (m *memory) read(server int, off uint64, to, n int) {
	o, _ := m.next()
	m.fab.Read(o, m.target(server, off), to, n)
}

// write adds a WRITE of n bytes of the buffer to the batch.
func (m *memory) write(server int, off uint64, from, n int) {
	o, _ := m.next()
	m.fab.Write(o, m.target(server, off), from, n)
}

// swap adds a CAS to the batch. When the batch is executed, the word of the buffer at offset `word`
// has the value that the CAS has found.
func (m *memory) swap(server int, off, compare, value uint64) (word int) {
	o, word := m.next()
	m.fab.CompareSwap(o, m.target(server, off), compare, value, word)
	return word
}

// add adds a FETCH_ADD to the batch. When the batch is executed, the word of the buffer at offset
// `word` has the value that the FETCH_ADD has found.
func (m *memory) add(server int, off, value uint64) (word int) {
	o, word := m.next()
	m.fab.FetchAdd(o, m.target(server, off), value, word)
	return word
}

// do executes the batch and counts a round trip. If connections fail, it repeats the operations
// that have not succeeded on new connections. So an operation may be executed twice, and a batch
// should only have operations of which a second execution does no harm. Such are READs, WRITEs to
// memory that no other client writes, and CASes to a value that only operations with the same
// purpose write.
func (m *memory) do(deadline clock.Time) error {
	m.repeated = false
	if m.pulsate != nil {
		m.pulsate()
	}
	for {
		err := m.once(deadline)
		if err == nil {
			return nil
		}
		m.batch = slices.DeleteFunc(m.batch, func(o *remotemem.Op) bool { return o.Done && o.Status == verbs.Success })
		m.repeated = true
		why, certain := err, false
		if err = m.prepareRetry(why, deadline); err == nil {
			certain, err = m.glance(deadline)
		}
		if err == nil && errors.Is(why, errReborn) && certain && !m.managed {
			err = kv.ErrLost
		}
		if err != nil {
			m.drop()
			return err
		}
	}
}

// rest executes the batch, unless it is empty.
func (m *memory) rest(deadline clock.Time) error {
	if len(m.batch) == 0 {
		return nil
	}
	return m.do(deadline)
}

// once executes the batch, and repeats no operation. After an error the batch is unchanged, and the
// caller repeats or drops it.
func (m *memory) once(deadline clock.Time) error {
	m.cost.RTTs++
	err := m.attach(deadline)
	if err == nil {
		from := m.rt.Enter(kv.PhaseTrip)
		err = m.fab.Do(deadline, m.batch...)
		m.rt.Leave(from)
	}
	if err == nil {
		err = m.confirm(deadline)
	}
	if err == nil {
		m.drop()
	}
	return err
}

func (m *memory) drop() { m.batch, m.n = m.batch[:0], 0 }

// prepareRetry decides whether an attempt that has failed with err is repeated. It returns nil,
// after a pause, if it is.
func (m *memory) prepareRetry(err error, deadline clock.Time) error {
	switch {
	case errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed), errors.Is(err, errView):
		return err
	case errors.Is(err, errFenced), m.rt.Now() >= deadline:
		return kv.TimedOut(err)
	}
	m.rt.Sleep(pause)
	return nil
}

// bytes copies n bytes of the buffer to dst[:0].
func (m *memory) bytes(dst []byte, at, n int) ([]byte, error) {
	dst = slices.Grow(dst[:0], n)[:n]
	return dst, m.fab.MR().ReadAt(dst, at)
}

// fetch reads n bytes of a server over the connection to it, into dst[:0].
func (m *memory) fetch(dst []byte, server int, off uint64, n int, deadline clock.Time) ([]byte, error) {
	m.read(server, off, atIn, n)
	if err := m.do(deadline); err != nil {
		return dst, err
	}
	return m.bytes(dst, atIn, n)
}

// put copies bytes into the buffer.
func (m *memory) put(b []byte, at int) error { return m.fab.MR().WriteAt(b, at) }

// close ends the connections, and asks the servers to free their queue pairs.
func (m *memory) close() error {
	err := m.fab.Close()
	for i := range m.links {
		if conn := m.links[i].mem.Conn; conn != 0 {
			_ = memservice.End(m.cfg.Context, m.cfg.Manager, m.cfg.Servers[i], conn, m.rt.Now().Add(farewellTimeout))
		}
	}
	return err
}
