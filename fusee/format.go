package fusee

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// piece is the number of bytes of one WRITE by which Format, or a master that fills a server,
// writes memory.
const piece = 32 << 10

// maker is the state of Format: access to the memory servers on which it makes a store.
type maker struct {
	mem      memory
	deadline clock.Time
}

// Format makes an empty store on memory servers, whatever they contain. It first removes the
// superblocks of an earlier store, and then ends the connections of that store's clients. So none
// of their requests arrives later, and no client of the new store gets the number of an earlier
// client. A client that connects as an owner after that finds no superblock or those of the new
// store (see introduce).
func Format(cfg Config, f FormatConfig, deadline clock.Time) (_ layout.Superblock, err error) {
	if err := cfg.validate(); err != nil {
		return layout.Superblock{}, err
	}
	m := &maker{deadline: deadline}
	if err := m.mem.open(cfg, deadline); err != nil {
		return layout.Superblock{}, err
	}
	defer func() { err = errors.Join(err, m.mem.close()) }()
	if err := m.withdraw(); err != nil {
		return layout.Superblock{}, err
	}
	last, memory, err := m.retire()
	if err != nil {
		return layout.Superblock{}, err
	}
	s := layout.Superblock{Generation: f.Generation}
	for s.Generation == 0 {
		s.Generation = m.mem.rt.Rand().Uint64()
	}
	if s.Shape, err = f.shape(len(cfg.Servers), memory); err != nil {
		return s, err
	}
	for i := range cfg.Servers {
		if err := m.clear(i, s.Shape.Len()); err != nil {
			return s, err
		}
		if i < s.Shape.IndexReplicas {
			if err := m.index(i, &s.Shape); err != nil {
				return s, err
			}
		}
	}
	if err := m.bytesAt(0, layout.ClientWord, binary.LittleEndian.AppendUint64(nil, uint64(last))); err != nil {
		return s, err
	}
	view := binary.LittleEndian.AppendUint64(nil, uint64(layout.FirstView(len(cfg.Servers))))
	for i := range cfg.Servers {
		if err := m.bytesAt(i, layout.ViewWord, view); err != nil {
			return s, err
		}
	}
	for i := range cfg.Servers {
		// The superblocks are written last, so that no client opens the store before it is
		// complete.
		var b [layout.SuperblockLen]byte
		s.Server = i
		s.Put(b[:])
		if err := m.bytesAt(i, 0, b[:]); err != nil {
			return s, err
		}
	}
	s.Server = 0
	return s, nil
}

// withdraw connects to the servers and removes their superblocks.
func (m *maker) withdraw() error {
	for i := range m.mem.cfg.Servers {
		if err := m.mem.reach(i, m.deadline); err != nil {
			return err
		}
		if err := m.bytesAt(i, 0, make([]byte, layout.SuperblockLen)); err != nil {
			return err
		}
	}
	return nil
}

// retire makes the servers end the connections of all clients. It returns the largest client number
// that was ever used, and the size in bytes of the smallest region of a server.
func (m *maker) retire() (last uint32, memory uint64, err error) {
	memory = ^uint64(0)
	for i, addr := range m.mem.cfg.Servers {
		for {
			var n uint32
			if n, err = memservice.Retire(m.mem.cfg.Context, m.mem.cfg.Manager, addr, 0, m.deadline); err == nil {
				last, memory = max(last, n), min(memory, uint64(m.mem.links[i].mem.Len))
				break
			}
			if err := m.mem.prepareRetry(err, m.deadline); err != nil {
				return 0, 0, err
			}
		}
	}
	return last, memory, nil
}

// bytesAt writes b to offset `off` of the region of server i.
func (m *maker) bytesAt(i int, off uint64, b []byte) error {
	return m.mem.pieces(i, off, b, func() error { return m.mem.do(m.deadline) })
}

// pieces writes b to offset `off` of the region of server i, piece by piece; do executes a batch.
func (m *memory) pieces(i int, off uint64, b []byte, do func() error) error {
	for some := range slices.Chunk(b, piece) {
		if err := m.put(some, atIn); err != nil {
			return err
		}
		m.write(i, off, atIn, len(some))
		if err := do(); err != nil {
			return err
		}
		off += uint64(len(some))
	}
	return nil
}

// clear writes zeros into the first size bytes of the region of server i.
func (m *maker) clear(i int, size uint64) error {
	if err := m.mem.put(make([]byte, piece), atOut); err != nil {
		return err
	}
	for off := uint64(0); off < size; {
		for ; off < size && m.mem.room() > 0; off += piece {
			m.mem.write(i, off, atOut, int(min(piece, size-off)))
		}
		if err := m.mem.do(m.deadline); err != nil {
			return err
		}
	}
	return nil
}

// index writes the directory and the headers of all buckets to server i. It includes subtables that
// are not in use yet: a split needs their headers.
func (m *maker) index(i int, s *layout.Shape) error {
	var b []byte
	for n := range s.Subtables {
		b = binary.LittleEndian.AppendUint64(b, s.Begin(n).Word())
	}
	if err := m.bytesAt(i, s.EntryAt(0), b); err != nil {
		return err
	}
	for n := range s.Subtables {
		b = make([]byte, s.SubtableLen())
		for at := 0; at < len(b); at += layout.BucketLen {
			layout.Header{Depth: s.Begin(n).Depth, Prefix: uint32(n)}.Put(b[at:])
		}
		if err := m.bytesAt(i, s.SubtableAt(n), b); err != nil {
			return err
		}
	}
	return nil
}
