package switchd

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio/trunkport"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// PortState says whether a port can be used.
type PortState string

const (
	PortUp        PortState = "up"
	PortNoCarrier PortState = "no carrier"
	PortMissing   PortState = "missing"
)

// Status is the answer to GET /status.
type Status struct {
	Rack    string        `json:"rack"`
	Program string        `json:"program"`
	PID     int           `json:"pid"`
	Uptime  time.Duration `json:"uptime"`
	// Process describes what the switch's process holds.
	Process metrics.Process `json:"process"`
	Ports   []PortStatus    `json:"ports"`
	// Trunks are those of all switches of the rack; none if it has one switch.
	Trunks []Trunk `json:"trunks,omitempty"`
	// Partition lists the groups of hosts that cannot reach each other. It is empty if there is no
	// partition.
	Partition [][]string `json:"partition,omitempty"`
	// Captures is how many captures run. CaptureLost is how many packets they lack because their
	// readers were too slow.
	Captures    int    `json:"captures"`
	CaptureLost uint64 `json:"captureLost"`
	// Delayed is how many frames injected faults delay now.
	Delayed int `json:"delayed"`
}

// PortStatus describes one port. Its rates are those of the last full second.
type PortStatus struct {
	Host  string    `json:"host"`
	Port  string    `json:"port"`
	State PortState `json:"state"`
	// Error says why a port is missing, or why a trunk to another machine has no carrier.
	Error string `json:"error,omitempty"`
	// Note says what is worth knowing of a trunk to another machine that works.
	Note         string `json:"note,omitempty"`
	RxPacketRate uint64 `json:"rxPacketsPerSecond"`
	RxBitRate    uint64 `json:"rxBitsPerSecond"`
	TxPacketRate uint64 `json:"txPacketsPerSecond"`
	TxBitRate    uint64 `json:"txBitsPerSecond"`
	// Faults lists the ids of the active fault rules on the link.
	Faults []string `json:"faults,omitempty"`
}

// Counters is the answer to GET /counters.
type Counters struct {
	Switch pipeline.Counters `json:"switch"`
	Ports  []PortCounters    `json:"ports"`
	// Lost counts drops of packets that have no ingress port.
	Lost map[pipeline.Reason]uint64 `json:"lost,omitempty"`
}

// PortCounters counts the traffic of one port.
type PortCounters struct {
	Host string `json:"host"`
	pipeline.PortCounters
	// SentPackets and SentBytes count packets and bytes that left the egress queue for the link.
	SentPackets uint64 `json:"sentPackets"`
	SentBytes   uint64 `json:"sentBytes"`
	// RxRing counts frames that were dropped because the port's receive ring was full.
	RxRing uint64 `json:"rxRingDropped"`
	// Trunk has what a trunk to another machine counts and measures; nil for other ports.
	Trunk *trunk.Stats `json:"trunk,omitempty"`
}

func (d *Daemon) Status() (s Status, err error) {
	err = d.commands.Do(func() {
		s = Status{
			Rack: d.rack, Program: d.traffic.sw.Spec().Name, PID: os.Getpid(), Process: metrics.Self(), Uptime: time.Duration(d.traffic.now),
			Partition: slices.Clone(d.faults.groups), Trunks: d.ports.trunks.status(), Delayed: len(d.traffic.delays.heap),
		}
		s.Captures, s.CaptureLost = d.traffic.hub.Readers()
		rules := d.faults.activeRules()
		d.ports.notes()
		for i := range d.ports.list {
			if d.ports.hosts[i] == "" {
				continue
			}
			p := &d.ports.list[i]
			ps := PortStatus{
				Host: d.ports.hosts[i], Port: d.ports.links[i].Ifname, State: PortUp, Faults: rules[d.ports.hosts[i]],
				RxPacketRate: p.rate.rxPackets, RxBitRate: p.rate.rxBits,
				TxPacketRate: p.rate.txPackets, TxBitRate: p.rate.txBits, Note: strings.Join(p.notes, "; "),
			}
			switch {
			case p.io == nil:
				ps.State = PortMissing
				if p.err != nil {
					ps.Error = p.err.Error()
				}
			case !p.carrier:
				ps.State = PortNoCarrier
				if far, ok := p.io.(*trunkport.Port); ok {
					ps.Error = far.Trunk().Trouble
				}
			}
			s.Ports = append(s.Ports, ps)
		}
	})
	return s, err
}

// Counters returns the counters since the start of the switch. Those of a guest's port begin when the
// guest joins; RxRing begins again when a port is opened again.
func (d *Daemon) Counters() (c Counters, err error) {
	err = d.commands.Do(func() {
		c.Switch, c.Lost = d.traffic.sw.Counters()
		for i := range d.ports.list {
			if d.ports.hosts[i] == "" {
				continue
			}
			p := &d.ports.list[i]
			pc := PortCounters{Host: d.ports.hosts[i], PortCounters: d.traffic.sw.Port(i), SentPackets: p.sent[0], SentBytes: p.sent[1]}
			if st, ok := p.io.(stater); ok {
				pc.RxRing = st.Stats().RxDropped
			}
			if far, ok := p.io.(*trunkport.Port); ok {
				t := far.Trunk()
				pc.Trunk = &t
			}
			c.Ports = append(c.Ports, pc)
		}
	})
	return c, err
}

// Flows lists the RoCEv2 flows that the switch has seen, sorted by packets, the largest number
// first.
func (d *Daemon) Flows() (f []pipeline.Flow, err error) {
	err = d.commands.Do(func() { f = d.traffic.sw.Flows() })
	return f, err
}
