package kvcs

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// ServerConfig describes a server. All fields but Again are required.
type ServerConfig struct {
	Coordinator netip.AddrPort
	Shape       Shape
	// Memory is the server's table, with the length of Shape.Bytes.
	Memory Memory
	// Lend gives the region of Memory a new key, which the region never had, and returns the ID of
	// the region and the key. It fails if the NIC is down: then the server must be started again.
	Lend func() (nic.RegionID, nic.Key, error)
	// First is the number of the server's first instance. It is larger than the numbers of all
	// instances that have run on this host, for example the number of the NIC's incarnation << 32.
	First uint64
	RTT   time.Duration
	// Again is the time after which the server reports its progress to the coordinator again (see
	// tell); 0 means 64 RTT.
	Again time.Duration
}

// Server is a replica: it executes the coordinator's records in memory that clients READ. It is a
// sans-I/O machine.
type Server struct {
	cfg      ServerConfig
	instance uint64
	store    uint64       // number of the store whose table arrives; 0 before its first part
	region   nic.RegionID // region and key are what cfg.Lend has returned for the instance
	key      nic.Key
	// copied is how many bytes of the table have arrived. table is nil until all have. position is
	// the position of the last record that was executed.
	copied   uint64
	table    *table
	position uint64
	told     clock.Time // when the server last sent a message
	starts   uint64     // number of instances so far
}

// NewServer makes a server. Its Deadline is due at once.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.Shape.Validate(); err != nil {
		return nil, err
	}
	if cfg.Memory == nil || cfg.Lend == nil || cfg.RTT <= 0 || cfg.First == 0 {
		return nil, errors.New("kvcs server: give Memory, Lend, First and RTT")
	}
	cfg.Again = cmp.Or(cfg.Again, 64*cfg.RTT)
	s := &Server{cfg: cfg, instance: cfg.First - 1}
	return s, s.restart()
}

// restart begins a new instance. When it has returned, no client can read the server's memory with
// the key of an earlier instance.
func (s *Server) restart() (err error) {
	s.instance++
	s.starts++
	s.store, s.copied, s.table, s.position, s.told = 0, 0, nil, 0, 0
	s.region, s.key, err = s.cfg.Lend()
	return err
}

// Starts returns how many instances the server has had.
func (s *Server) Starts() uint64 { return s.starts }

// Receive handles a datagram.
func (s *Server) Receive(now clock.Time, from netip.AddrPort, b []byte, out *Outbox) {
	var m message
	if from != s.cfg.Coordinator || !m.parse(b) || m.id != s.instance {
		return
	}
	switch m.kind {
	case msgRestart:
		if s.restart() == nil {
			s.Tick(now, out)
		}
		return
	case msgCopy:
		s.copy(&m)
	case msgRecord:
		if s.table == nil || m.store != s.store || m.number != s.position+1 {
			break // a duplicate, or a record behind a gap
		}
		if s.table.execute(m.number, &record{step: step(m.op), key: m.key, value: m.body}) == nil {
			s.position++
		}
	default:
		return
	}
	s.tell(now, out)
}

// copy stores the next part of the copy of the table. It ignores other parts.
func (s *Server) copy(m *message) {
	size := uint64(s.cfg.Shape.Bytes())
	if s.table != nil || uint64(m.region) != size || uint64(m.at) != s.copied || s.copied+uint64(len(m.body)) > size || s.copied > 0 && m.store != s.store {
		return
	}
	s.store = m.store
	s.cfg.Memory.Store(m.body, int(s.copied))
	if s.copied += uint64(len(m.body)); s.copied < size {
		return
	}
	t, err := loadTable(s.cfg.Shape, s.cfg.Memory)
	if err != nil {
		s.copied = 0
		return
	}
	s.table, s.position = t, m.number
}

// tell reports the server's progress to the coordinator: how many bytes of the copy it has, and
// which record it has executed last.
func (s *Server) tell(now clock.Time, out *Outbox) {
	s.told = now
	out.send(s.cfg.Coordinator, &message{kind: msgProgress, id: s.instance, store: s.store, number: s.position, at: uint32(s.copied)})
}

// Tick asks the coordinator for a copy of the table. Once a part of the copy has arrived, it
// reports instead how far the server has come (see tell).
func (s *Server) Tick(now clock.Time, out *Outbox) {
	if now < s.Deadline() {
		return
	}
	if s.copied > 0 {
		s.tell(now, out)
		return
	}
	s.told = now
	out.send(s.cfg.Coordinator, &message{kind: msgJoin, id: s.instance, region: uint32(s.region), body: s.key[:]})
}

// Deadline returns when Tick must be called.
func (s *Server) Deadline() clock.Time {
	switch {
	case s.told == 0:
		return 0
	case s.copied == 0:
		return s.told.Add(8 * s.cfg.RTT)
	}
	return s.told.Add(s.cfg.Again)
}
