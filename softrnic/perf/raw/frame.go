package raw

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Host describes the host that runs or serves a test.
type Host struct {
	Name string
	// Ifname is the name of the network interface through which the host sends and receives the
	// frames of a test. MAC is the address of that interface.
	Ifname string
	MAC    wire.MAC
	// Spin is how long a thread polls before it sleeps.
	Spin time.Duration
	// At is the address at which Listen listens; the zero Addr means all addresses of the host.
	At netip.Addr
	// LinkMTU is the MTU of the host's link in bytes.
	LinkMTU int
	// Inside runs a function that opens sockets in the host's network namespace.
	Inside func(open func() error) error
}

const (
	// etherType is the EtherType for local experiments (IEEE 802).
	etherType = 0x88b5
	tcpPort   = 18516

	headerLen     = 32
	maxServers    = 4 // largest number of tests that a Server serves at the same time
	setupPatience = 5 * time.Second
)

// Operations of a frame.
const (
	opEcho   = 1 // requests an opAnswer with the same number
	opData   = 2
	opAsk    = 3 // carries data, and requests an opAnswer with the number of data frames that have arrived
	opProbe  = 4 // carries no data, and requests an opAnswer with the number of data frames that have arrived
	opAnswer = 5
)

// putFrame writes a frame of len(b) bytes.
func putFrame(b []byte, dst, src wire.MAC, op byte, session, number uint64) {
	copy(b, dst[:])
	copy(b[6:], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
	b[14], b[15] = op, 0
	binary.BigEndian.PutUint64(b[16:], session)
	binary.BigEndian.PutUint64(b[24:], number)
}

// parseFrame parses a frame of a session.
func parseFrame(b []byte, session uint64) (op byte, number uint64, ok bool) {
	if len(b) < headerLen || binary.BigEndian.Uint16(b[12:]) != etherType || binary.BigEndian.Uint64(b[16:]) != session {
		return 0, 0, false
	}
	return b[14], binary.BigEndian.Uint64(b[24:]), true
}

// end is one end of a raw test, which sends plain Ethernet frames without RDMA.
type end struct {
	port    packetio.Port
	waiter  packetio.Waiter
	rx, tx  packetio.Batch
	self    wire.MAC
	session uint64
}

// openEnd opens a port for the frames of a session.
func (h *Host) openEnd(session uint64) (*end, error) {
	var port *afpacket.Port
	err := h.Inside(func() (err error) {
		port, err = afpacket.Open(afpacket.Config{Ifname: h.Ifname, Mode: afpacket.Tap, EtherType: etherType})
		return err
	})
	if err != nil {
		return nil, err
	}
	w, err := afpacket.NewWaiter(h.Spin, port)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return &end{port: port, waiter: w, self: h.MAC, session: session}, nil
}

func (e *end) close() error { return errors.Join(e.waiter.Close(), e.port.Close()) }

// serve answers frames until the waiter of e is closed.
func (e *end) serve() error {
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
			op, number, ok := parseFrame(f.Data, e.session)
			if !ok {
				continue
			}
			switch op {
			case opData:
				count++
				continue
			case opAsk:
				count++
				number = count
			case opProbe:
				number = count
			case opEcho:
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

// answer sends an opAnswer. The answer to an echo is as long as the request; others are as short as
// possible.
func (e *end) answer(f []byte, op byte, number uint64) {
	n := len(f)
	if op != opEcho {
		n = max(headerLen, minFrame)
	}
	b := e.tx.Alloc(n)[:n]
	putFrame(b, wire.MAC(f[6:12]), e.self, opAnswer, e.session, number)
	e.tx.Add(0, b)
}

// minFrame is the smallest frame of Ethernet without its FCS.
const minFrame = 60
