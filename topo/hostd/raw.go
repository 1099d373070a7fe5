package hostd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A raw test moves plain Ethernet frames over a port of the same kind, through the same switch, and with the same way
// of waiting as the NIC: what is left of the NIC's figures is the price of RDMA.
//
// The client opens a TCP connection to rawPort of the peer and sends the number of the session; the peer answers with
// a line as soon as it listens for frames of that session, and does so until the connection ends.
//
//	 0     6     12          14   15        16        24
//	+-----+-----+-----------+----+---------+---------+--------+---------
//	| dst | src | rawType   | op | 0       | session | number | filling
//	+-----+-----+-----------+----+---------+---------+--------+---------
const (
	// rawType is the EtherType for local experiments (IEEE 802).
	rawType = 0x88b5
	rawPort = 18516

	rawHeader  = 32
	maxRaw     = 4 // servers at the same time
	rawPatient = 5 * time.Second
)

// Operations of a frame.
const (
	rawEcho   = 1 // wants the same number back as rawAnswer
	rawData   = 2
	rawAsk    = 3 // data that wants the count of data frames so far as rawAnswer
	rawProbe  = 4 // wants that count and is no data
	rawAnswer = 5
)

// putRaw writes a frame of len(b) bytes.
func putRaw(b []byte, dst, src wire.MAC, op byte, session, number uint64) {
	copy(b, dst[:])
	copy(b[6:], src[:])
	binary.BigEndian.PutUint16(b[12:], rawType)
	b[14], b[15] = op, 0
	binary.BigEndian.PutUint64(b[16:], session)
	binary.BigEndian.PutUint64(b[24:], number)
}

// rawFrame reads a frame of a session.
func rawFrame(b []byte, session uint64) (op byte, number uint64, ok bool) {
	if len(b) < rawHeader || binary.BigEndian.Uint16(b[12:]) != rawType || binary.BigEndian.Uint64(b[16:]) != session {
		return 0, 0, false
	}
	return b[14], binary.BigEndian.Uint64(b[24:]), true
}

// rawEnd is one end of a raw test.
type rawEnd struct {
	port    packetio.Port
	waiter  packetio.Waiter
	rx, tx  packetio.Batch
	self    wire.MAC
	session uint64
}

func (h *Host) newRawEnd(session uint64) (*rawEnd, error) {
	port, err := afpacket.Open(afpacket.Config{Ifname: h.cfg.Ifname, Mode: afpacket.Tap, EtherType: rawType})
	if err != nil {
		return nil, err
	}
	w, err := afpacket.NewWaiter(h.self.Spin, port)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return &rawEnd{port: port, waiter: w, self: h.self.MAC, session: session}, nil
}

func (e *rawEnd) close() error { return errors.Join(e.waiter.Close(), e.port.Close()) }

// serve answers until the waiter is closed.
func (e *rawEnd) serve() error {
	var count uint64
	for {
		n, err := e.port.Recv(&e.rx)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := e.waiter.Wait(-1); err != nil {
				return err
			}
			continue
		}
		e.tx.Reset()
		for _, f := range e.rx.Frames {
			op, number, ok := rawFrame(f.Data, e.session)
			if !ok {
				continue
			}
			switch op {
			case rawData:
				count++
				continue
			case rawAsk:
				count++
				number = count
			case rawProbe:
				number = count
			case rawEcho:
			default:
				continue
			}
			e.answer(f.Data, op, number)
		}
		if _, err := e.port.Send(&e.tx); err != nil {
			return err
		}
	}
}

// answer sends a frame back: an echo in full size, a count as small as it can be.
func (e *rawEnd) answer(f []byte, op byte, number uint64) {
	n := len(f)
	if op != rawEcho {
		n = max(rawHeader, minFrame)
	}
	b := e.tx.Alloc(n)[:n]
	putRaw(b, wire.MAC(f[6:12]), e.self, rawAnswer, e.session, number)
	e.tx.Add(0, b)
}

// minFrame is the smallest frame of Ethernet without its FCS.
const minFrame = 60

// rawServer listens for the connections of raw tests.
type rawServer struct {
	h        *Host
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex // guards what follows
	closed   bool
	conns    map[net.Conn]struct{}
}

func newRawServer(h *Host) (*rawServer, error) {
	l, err := net.Listen("tcp", fmt.Sprint(":", rawPort))
	if err != nil {
		return nil, err
	}
	s := &rawServer{h: h, listener: l, conns: make(map[net.Conn]struct{})}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *rawServer) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // no descriptors left, for example
			continue
		}
		if !s.track(c) {
			_ = c.Close() // too many, or ending
			continue
		}
		s.wg.Go(func() {
			defer s.drop(c)
			if err := s.handle(c); err != nil {
				s.h.log.Warn("raw test", "peer", c.RemoteAddr(), "error", err)
			}
		})
	}
}

func (s *rawServer) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxRaw {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *rawServer) drop(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close() // the test is over
}

// handle serves one client.
func (s *rawServer) handle(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(rawPatient)); err != nil {
		return err
	}
	var hello [8]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return err
	}
	e, err := s.h.newRawEnd(binary.BigEndian.Uint64(hello[:]))
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- e.serve() }()
	_, err = c.Write([]byte{'\n'})
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err == nil {
		_, _ = c.Read(hello[:]) // returns when the client goes
	}
	err = errors.Join(err, e.close())
	if serr := <-served; !errors.Is(serr, afpacket.ErrClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

func (s *rawServer) close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // its thread ends
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	return err
}

// dialRaw makes the peer listen for a session; the connection ends it.
func dialRaw(ctx context.Context, to netip.Addr, session uint64) (net.Conn, error) {
	d := net.Dialer{Timeout: rawPatient}
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(to, rawPort).String())
	if err != nil {
		return nil, err
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], session)
	err = c.SetDeadline(time.Now().Add(rawPatient))
	if err == nil {
		_, err = c.Write(b[:])
	}
	if err == nil {
		_, err = c.Read(b[:1])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the peer's raw server does not answer: %w", err), c.Close())
	}
	return c, nil
}
