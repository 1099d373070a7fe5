// Package remote gives a program on a host of a rack simple access to the memory of a memory
// server. It opens the host's NIC by package ipc, connects one queue pair, and reads and writes.
//
//	mem, err := remote.Dial("10.77.0.3")
//	_, err = mem.WriteAt([]byte("hello"), 0)
//	before, err := mem.FetchAdd(64, 1)
//
// Each method waits for its operation. Programs that need several operations in flight,
// completions, or memory of their own use package ipc; see softrnic/ipc/example and
// compose/examples/goclient.
package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// atOnce is the largest number of bytes of one READ or WRITE: the size of the registered buffer.
const atOnce = 64 << 10

// ErrRange is the error of an access beyond the end of the memory, and of an atomic on a word that
// is not aligned to 8 bytes.
var ErrRange = errors.New("beyond the memory")

// Memory is the memory that a memory server shares with all its clients. Several goroutines may
// call its methods; the calls are executed one after the other. After an error of the network every
// call fails; then Close the memory and Dial again.
type Memory struct {
	mu  sync.Mutex
	nic *ipc.Context
	mr  verbs.MR
	cq  verbs.CQ
	qp  verbs.QP
	far memservice.Region
}

var (
	_ io.ReaderAt = (*Memory)(nil)
	_ io.WriterAt = (*Memory)(nil)
	_ io.Closer   = (*Memory)(nil)
)

// Dial connects to the memory of the host with that address, through the NIC of the host on which
// the program runs. The caller must Close the Memory; the end of the program closes it, too.
func Dial(addr string) (*Memory, error) { return DialBy(ipc.Config{}, addr) }

// DialBy is Dial through the NIC that cfg describes.
func DialBy(cfg ipc.Config, addr string) (m *Memory, err error) {
	to, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	m = new(Memory)
	if m.nic, err = ipc.Open(cfg); err != nil {
		return nil, err
	}
	if err := m.connect(to); err != nil {
		return nil, errors.Join(fmt.Errorf("remote: %w", err), m.nic.Close())
	}
	return m, nil
}

func (m *Memory) connect(to netip.Addr) error {
	pd, err := m.nic.AllocPD()
	if err != nil {
		return err
	}
	if m.mr, err = pd.RegMR(nil, atOnce, verbs.LocalWrite); err != nil {
		return err
	}
	if m.cq, err = m.nic.CreateCQ(1); err != nil {
		return err
	}
	if m.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: m.cq, RecvCQ: m.cq}); err != nil {
		return err
	}
	m.far, err = memservice.Dial(m.nic.Manager(), m.qp, to, rdmacm.Params{}, clock.Never)
	return err
}

// Size returns the length of the memory in bytes.
func (m *Memory) Size() int64 { return int64(m.far.Len) }

// Close closes the context of the NIC, and the connection with it. The memory server keeps the
// bytes.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nic.Close()
}

// ReadAt reads from the memory by RDMA READs. It fills p or fails. If the memory ends before p is
// full, ReadAt reads the bytes up to the end and returns io.EOF.
func (m *Memory) ReadAt(p []byte, off int64) (int, error) {
	if left := m.Size() - off; off >= 0 && left >= 0 && int64(len(p)) > left {
		n, err := m.move(verbs.OpRead, p[:left], off, m.mr.ReadAt)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	return m.move(verbs.OpRead, p, off, m.mr.ReadAt)
}

// WriteAt writes to the memory by RDMA WRITEs. When it returns nil, the bytes are in the memory.
func (m *Memory) WriteAt(p []byte, off int64) (int, error) {
	return m.move(verbs.OpWrite, p, off, m.mr.WriteAt)
}

// move transfers p in pieces through the registered buffer. It calls the function `buffer` to copy
// a piece into the registered buffer before a WRITE, or out of it after a READ.
func (m *Memory) move(op verbs.WROpcode, p []byte, off int64, buffer func(p []byte, off int) error) (n int, err error) {
	if off < 0 || off > m.Size() || int64(len(p)) > m.Size()-off {
		return 0, fmt.Errorf("remote: %w: %d bytes at %d of %d", ErrRange, len(p), off, m.Size())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n < len(p) {
		piece := p[n:min(n+atOnce, len(p))]
		if op == verbs.OpWrite {
			err = buffer(piece, 0)
		}
		if err == nil {
			err = m.do(&verbs.SendWR{Op: op, SGL: []verbs.SGE{m.mr.SGE(0, len(piece))}, RemoteAddr: m.far.Addr + uint64(off) + uint64(n)})
		}
		if err == nil && op == verbs.OpRead {
			err = buffer(piece, 0)
		}
		if err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// CompareSwap writes `swap` to the 8-byte word at `off` if its value is `old`. It returns the value
// that the word had before; if was == old, CompareSwap has written `swap`. Words are little-endian.
// The operation is atomic for all clients that use CompareSwap and FetchAdd.
func (m *Memory) CompareSwap(off int64, old, swap uint64) (was uint64, err error) {
	return m.atomic(&verbs.SendWR{Op: verbs.OpCmpSwap, CompareAdd: old, Swap: swap}, off)
}

// FetchAdd adds to the 8-byte word at `off` and returns the value that the word had before.
func (m *Memory) FetchAdd(off int64, add uint64) (was uint64, err error) {
	return m.atomic(&verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: add}, off)
}

func (m *Memory) atomic(wr *verbs.SendWR, off int64) (was uint64, err error) {
	if off < 0 || off > m.Size()-8 || off%8 != 0 {
		return 0, fmt.Errorf("remote: %w: an atomic at %d of %d; want a multiple of 8", ErrRange, off, m.Size())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	wr.SGL, wr.RemoteAddr = []verbs.SGE{m.mr.SGE(0, 8)}, m.far.Addr+uint64(off)
	if err := m.do(wr); err != nil {
		return 0, err
	}
	var word [8]byte
	err = m.mr.ReadAt(word[:], 0)
	return binary.LittleEndian.Uint64(word[:]), err
}

// do posts a request and waits for its completion.
func (m *Memory) do(wr *verbs.SendWR) error {
	wr.Flags, wr.RKey = verbs.Signalled, m.far.RKey
	if err := m.qp.PostSend(*wr); err != nil {
		return fmt.Errorf("remote: %w", err)
	}
	if err := m.cq.Wait(clock.Never); err != nil {
		return fmt.Errorf("remote: %w", err)
	}
	var wc [1]verbs.WC
	if _, err := m.cq.Poll(wc[:]); err != nil {
		return fmt.Errorf("remote: %w", err)
	}
	if wc[0].Status != verbs.Success {
		return fmt.Errorf("remote: %v: %v", wr.Op, wc[0].Status)
	}
	return nil
}
