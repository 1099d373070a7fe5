package kvcsrack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// Host is a host with its NIC and what runs on it.
type Host struct {
	Name string
	Link *simnet.Link
	rack *Rack
	addr netip.Addr
	node simnet.NodeID
	rand *rand.Rand

	epoch uint32 // how often the NIC was started
	nic   *nic.NIC
	nics  *executor.Machine
	seen  uint64 // Activity of nics when results were last collected
	// machine is the coordinator or server; nil on hosts of clients, and after a crash. While it
	// hangs, late has the datagrams for it.
	machine kvcs.Machine
	hung    bool
	late    []datagram
	box     kvcs.Outbox
	rekeys  *nic.Portal         // the portal for the coordinator's REKEYs
	cut     map[netip.Addr]bool // hosts whose frames do not arrive; see Rack.Part
	clients
}

// clients is the process in which the clients of a host run: its local memory, which all of its
// threads share, and ports, which has the Port of each thread by the thread's UDP port.
type clients struct {
	pid    nic.PID
	exec   *executor.Executor
	local  *nic.Region
	buf    []byte
	ports  map[uint16]*Port
	last   uint16 // number of ports that were opened
	health kvcs.Health
}

type datagram struct {
	from netip.AddrPort
	data []byte
}

// boot starts the NIC, for the first time or after a crash.
func (h *Host) boot() (err error) {
	cfg := &h.rack.cfg
	mac, _ := macOf(h.addr)
	h.nic, err = nic.New(nic.Config{
		MAC: mac, Addr: h.addr, LinkMTU: cfg.MTU, Rand: h.rand, Resolve: macOf, Epoch: h.epoch, RTT: cfg.RTT, Rate: cfg.Rate, Slots: 256, Tickets: 64, Regions: 8,
		Window: cfg.Window, Threshold: cfg.Threshold,
	})
	h.epoch++
	h.drive()
	return err
}

// drive makes the machine that drives the NIC. It has no executor yet.
func (h *Host) drive() {
	h.nics = executor.NewMachine(h.nic)
	h.nics.Failed, h.nics.Ended, h.seen = h.rack.fail, h.rekeyed, 0
}

func (h *Host) register(buf []byte, access verbs.Access) (*mem.Region, *nic.Region, error) {
	table := mem.New(h.rand, 0)
	pd, err := table.AllocPD()
	if err != nil {
		return nil, nil, err
	}
	m, err := table.Reg(pd, buf, access)
	if err != nil {
		return nil, nil, err
	}
	r, err := h.nic.Register(m)
	return m, r, err
}

// memory is the memory of a server, which its NIC lends.
type memory struct{ *mem.Region }

func (m memory) Load(b []byte, at int)  { _ = m.ReadAt(b, at) }  // the table is within the region
func (m memory) Store(b []byte, at int) { _ = m.WriteAt(b, at) } // the table is within the region

func (h *Host) serve() error {
	cfg := &h.rack.cfg
	m, r, err := h.register(make([]byte, cfg.Shape.Bytes()), verbs.LocalWrite|verbs.RemoteRead)
	if err != nil {
		return err
	}
	n := h.nic
	s, err := kvcs.NewServer(kvcs.ServerConfig{
		Coordinator: netip.AddrPortFrom(addrOf(0), kvcs.UDPPort), Shape: cfg.Shape, Memory: memory{m}, RTT: cfg.RTT, First: uint64(h.epoch) << 32,
		Lend: func() (nic.RegionID, nic.Key, error) {
			var k nic.Key
			for i := range k {
				k[i] = byte(h.rand.Uint32())
			}
			return r.ID(), k, n.SetKey(r, k)
		},
	})
	if err == nil {
		h.machine = s
	}
	return err
}

func (h *Host) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if h.cut[sender(f.Data)] {
		return
	}
	if from, to, data, ok := h.datagram(f.Data); ok {
		h.deliver(now, from, to, data)
	} else {
		h.nics.Frame(now, port, f, out)
	}
	h.flush(now, out)
}

func (h *Host) Tick(now clock.Time, out *packetio.Batch) {
	if h.machine != nil && !h.hung && h.machine.Deadline() <= now {
		h.machine.Tick(now, &h.box)
	}
	if h.nics.Deadline() <= now {
		h.nics.Tick(now, out)
	}
	h.flush(now, out)
}

func (h *Host) Deadline() clock.Time {
	at := h.nics.Deadline()
	if h.machine != nil && !h.hung {
		at = clock.Min(at, h.machine.Deadline())
	}
	return at
}

// sender returns the source of a frame; the zero address if it has none.
func sender(b []byte) netip.Addr {
	var eth wire.Ethernet
	var ip wire.IPv4
	if eth.Parse(b) != nil || eth.Type != wire.EtherTypeIPv4 || ip.Parse(b[eth.Len():]) != nil {
		return netip.Addr{}
	}
	return netip.AddrFrom4(ip.Src)
}

// datagram parses the frame b. ok is false if it has no datagram for a port of the service on this
// host.
func (h *Host) datagram(b []byte) (from netip.AddrPort, to uint16, data []byte, ok bool) {
	var eth wire.Ethernet
	var ip wire.IPv4
	var udp wire.UDP
	if eth.Parse(b) != nil || eth.Type != wire.EtherTypeIPv4 {
		return from, 0, nil, false
	}
	b = b[eth.Len():]
	if ip.Parse(b) != nil || ip.Protocol != wire.ProtocolUDP || netip.AddrFrom4(ip.Dst) != h.addr {
		return from, 0, nil, false
	}
	b = b[ip.Len():ip.TotalLen]
	if udp.Parse(b) != nil || udp.DstPort < kvcs.UDPPort {
		return from, 0, nil, false
	}
	return netip.AddrPortFrom(netip.AddrFrom4(ip.Src), udp.SrcPort), udp.DstPort, b[udp.Len():], true
}

// deliver hands a datagram to a machine or a thread.
func (h *Host) deliver(now clock.Time, from netip.AddrPort, to uint16, data []byte) {
	switch p := h.ports[to]; {
	case p != nil:
		p.inbox = append(p.inbox, append([]byte(nil), data...))
		p.proc.Wake()
	case h.machine == nil || to != kvcs.UDPPort:
	case h.hung:
		if len(h.late) < maxLate {
			h.late = append(h.late, datagram{from, append([]byte(nil), data...)})
		}
	default:
		h.machine.Receive(now, from, data, &h.box)
	}
}

// maxLate bounds the datagrams that wait for a process that hangs, as a socket's buffer would.
const maxLate = 256

// flush sends the packets that a machine has put into the outbox, and issues the REKEYs there on
// the NIC.
func (h *Host) flush(now clock.Time, out *packetio.Batch) {
	for i := range h.box.Packets {
		p := &h.box.Packets[i]
		h.send(kvcs.UDPPort, p.To, p.Data, out)
	}
	for i := range h.box.Rekeys {
		k := &h.box.Rekeys[i]
		if err := h.rekeys.Issue(now, &nic.Command{
			Op: rekey, Length: len(k.Key), Target: k.Target, Remote: k.Region, Key: nic.NewCipher(k.Key), NewKey: k.NewKey, Tag: k.Tag,
		}); err != nil {
			h.rack.fail(err)
		}
	}
	issued := len(h.box.Rekeys) > 0
	h.box = kvcs.Outbox{}
	if issued {
		h.nics.Tick(now, out)
	}
	h.collect()
}

func (h *Host) send(from uint16, to netip.AddrPort, data []byte, out *packetio.Batch) {
	eth := wire.Ethernet{Type: wire.EtherTypeIPv4}
	eth.Src, _ = macOf(h.addr)
	eth.Dst, _ = macOf(to.Addr())
	ip := wire.IPv4{DF: true, TTL: 64, Protocol: wire.ProtocolUDP, Src: h.addr.As4(), Dst: to.Addr().As4()}
	udp := wire.UDP{SrcPort: from, DstPort: to.Port()}
	b := out.Alloc(eth.Len() + ip.Len() + udp.Len() + len(data))
	b = udp.AppendTo(ip.AppendTo(eth.AppendTo(b), udp.Len()+len(data)), len(data))
	out.Add(0, append(b, data...))
}

// rekeyed hands the completions of REKEYs to the coordinator.
func (h *Host) rekeyed() {
	if h.rekeys == nil {
		return
	}
	var done [16]nic.Completion
	for _, c := range done[:h.rekeys.Poll(done[:])] {
		h.rack.coord.Rekeyed(h.rack.Net.Now(), c.Tag, c.Status, &h.box)
	}
}

// collect hands the results of READs to the threads that wait for them.
func (h *Host) collect() {
	if h.exec == nil || h.nics.Activity() == h.seen {
		return
	}
	h.seen = h.nics.Activity()
	var out [16]executor.Result
	for {
		k := h.exec.Results(out[:])
		for i := range out[:k] {
			if p := h.ports[uint16(out[i].Tag)]; p != nil {
				p.status, p.reading = out[i].Status, false
				p.proc.Wake()
			}
		}
		if k < len(out) {
			return
		}
	}
}

// step calls f as an event of the host that no frame and no timer has caused. Then it sends the
// packets and REKEYs that f has put into the outbox.
func (h *Host) step(f func(now clock.Time, out *packetio.Batch)) {
	now, out := h.rack.Net.Begin(h.node)
	f(now, out)
	h.flush(now, out)
	h.rack.Net.End(h.node)
}

// Hang stops the server's process until Resume; its NIC goes on.
func (h *Host) Hang() { h.hung = true; h.step(func(clock.Time, *packetio.Batch) {}) }

// Resume lets the server's process go on, with the datagrams that have waited.
func (h *Host) Resume() {
	h.hung = false
	h.step(func(now clock.Time, _ *packetio.Batch) {
		late := h.late
		h.late = nil
		for _, d := range late {
			if h.machine != nil {
				h.machine.Receive(now, d.from, d.data, &h.box)
			}
		}
	})
}

// Crash ends the NIC of a host with all that runs there: coordinator, server, or clients. Restart
// starts NIC, coordinator and server again.
func (h *Host) Crash() {
	for _, p := range h.ports {
		p.proc.Kill()
	}
	h.step(func(clock.Time, *packetio.Batch) {
		h.nic.Down()
		h.drive()
		h.machine, h.late, h.hung, h.rekeys, h.clients = nil, nil, false, nil, clients{ports: make(map[uint16]*Port)}
	})
}

// Restart starts a host after a Crash. A coordinator begins with an empty table.
func (h *Host) Restart() error {
	var err error
	h.step(func(clock.Time, *packetio.Batch) {
		if err = h.boot(); err == nil {
			err = h.rack.serve(h)
		}
	})
	return err
}

func (h *Host) String() string { return fmt.Sprintf("%s (%v)", h.Name, h.addr) }
