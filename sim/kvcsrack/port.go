package kvcsrack

import (
	"errors"
	"net/netip"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

const rekey = onerma.Rekey

// area is the length in bytes of a thread's local memory.
const area = 8192

// Port is the I/O of a client: a thread of a host.
type Port struct {
	host    *Host
	proc    *simnet.Proc
	number  uint16 // its UDP port
	place   int    // offset of its area in the host's buf
	inbox   [][]byte
	reading bool       // true while a READ is in flight
	status  nic.Status // status of the last READ
}

// open makes a port. With the first port of a host it also opens the process of the host's clients.
func (h *Host) open() (*Port, error) {
	r := h.rack
	if h.exec == nil {
		h.buf = make([]byte, maxClients*area)
		_, local, err := h.register(h.buf, verbs.LocalWrite)
		if err != nil {
			return nil, err
		}
		r.pids++
		portal, err := h.nic.Open(r.pids, 2*maxClients)
		if err != nil {
			return nil, err
		}
		if h.exec, err = executor.New(executor.Config{RTT: r.cfg.RTT, First: r.cfg.First}, portal); err != nil {
			return nil, err
		}
		h.local, h.pid = local, r.pids
		h.nics.Add(h.exec)
	}
	if int(h.last) == maxClients {
		return nil, errors.New("too many clients on a host")
	}
	h.last++
	p := &Port{host: h, number: kvcs.UDPPort + h.last, place: int(h.last-1) * area}
	h.ports[p.number] = p
	return p, nil
}

func (h *Host) close(p *Port) { delete(h.ports, p.number) }

func (p *Port) Now() clock.Time { return p.host.rack.Net.Now() }

func (p *Port) Closed() bool { return false }

func (p *Port) Send(b []byte) {
	p.host.step(func(_ clock.Time, out *packetio.Batch) {
		p.host.send(p.number, netip.AddrPortFrom(addrOf(0), kvcs.UDPPort), b, out)
	})
}

func (p *Port) Receive(until clock.Time) ([]byte, bool) {
	for len(p.inbox) == 0 {
		if p.Now() >= until {
			return nil, false
		}
		p.proc.Park(until, "a message of the coordinator")
	}
	b := p.inbox[0]
	p.inbox = p.inbox[1:]
	return b, true
}

func (p *Port) Sleep(until clock.Time) {
	for p.Now() < until {
		p.proc.Park(until, "a time")
	}
}

func (p *Port) Read(r *kvcs.Remote, offset uint64, b []byte, until clock.Time) nic.Status {
	h := p.host
	p.reading = true
	h.step(func(now clock.Time, out *packetio.Batch) {
		h.rack.fail(h.exec.Start(now, executor.Transfer{
			Op: onerma.Read, Target: r.Addr, Remote: r.Region, Offset: offset, Length: len(b), Local: h.local, LocalOffset: uint64(p.place), Key: r.Key,
			Deadline: until, Once: true, Tag: uint64(p.number),
		}))
		h.nics.Tick(now, out)
	})
	for p.reading {
		p.proc.Park(clock.Never, "the end of a READ")
	}
	copy(b, h.buf[p.place:])
	return p.status
}

// Config returns the configuration of another client that the thread uses in turn with its first
// one. If an answer to one client arrives while the other one waits, the answer is lost, as any
// datagram may be.
func (p *Port) Config(number uint64) kvcs.ClientConfig {
	return kvcs.ClientConfig{Port: p, PID: p.host.pid, RTT: p.host.rack.cfg.RTT, Number: number}
}
