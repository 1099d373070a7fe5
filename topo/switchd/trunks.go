package switchd

import (
	"context"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/linkstate"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// trunks is what a switch knows that is one of several: which trunks work (package linkstate), and which
// ports therefore lead to each host. Only the loop uses it. A nil *trunks is that of a switch that is
// the only one.
type trunks struct {
	name      string // of the switch
	ports     *ports
	described func() *rackfile.Rack
	out       *pipeline.Trunks // those of the pipeline
	machine   *linkstate.Machine
	trunks    []rackfile.Trunk
	own       []int // by trunk: the number of its port; -1: it is a trunk of other switches
	// rack is the description for which the routes were made; up and carrier the states of the trunks
	// and of the ports.
	rack        *rackfile.Rack
	up, carrier []bool
	// tree has the trunks of this switch that are in the tree, and joins when one that is to join it
	// does: 0 if none is to. One that is to leave does so at once.
	tree    []bool
	joins   []clock.Time
	want    []int            // the trunks of this switch that belong into the tree, as long as up stays
	growing bool             // a trunk is to join or to leave the tree
	groups  map[wire.MAC]int // groups of the partition of far hosts
	fresh   bool             // the routes are those of rack, up and groups
}

// Trunk is the state of a trunk between two switches, as one of them knows it.
type Trunk struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
}

// trunks returns the trunks of the pipeline; nil if the rack has one switch.
func (c *Config) trunks() *pipeline.Trunks {
	if c.Described == nil || c.Described.Fabric == nil {
		return nil
	}
	return new(pipeline.Trunks)
}

// newTrunks makes the trunks of a switch; nil if the rack has one switch. described returns the rack's
// present description.
func newTrunks(out *pipeline.Trunks, s *ports, described func() *rackfile.Rack) *trunks {
	if out == nil {
		return nil
	}
	rack := described()
	t := &trunks{name: rack.Switch.Name, ports: s, described: described, out: out, trunks: rack.Trunks(), rack: rack}
	for _, c := range t.trunks {
		t.own = append(t.own, slices.Index(s.hosts, c.Name()))
	}
	t.tree, t.joins = make([]bool, len(t.trunks)), make([]clock.Time, len(t.trunks))
	t.up, t.carrier = make([]bool, len(t.trunks)), make([]bool, len(t.trunks))
	t.machine = linkstate.New(apps.Topology(rack), slices.Index(rack.SwitchNames(), t.name), uint64(time.Now().UnixMicro()))
	return t
}

// trunkLinks lists the ports of a switch that lead to others.
func trunkLinks(rack *rackfile.Rack, name string) (list []Link) {
	for _, c := range rack.Trunks() {
		leaf, far := c.Ports()
		switch name {
		case c.Leaf:
			list = append(list, Link{Host: c.Name(), Ifname: leaf, GSO: true, Far: remote(rack, c, name)})
		case c.Far:
			list = append(list, Link{Host: c.Name(), Ifname: far, GSO: true, Far: remote(rack, c, name)})
		}
	}
	return list
}

// deadline returns when tick must be called.
func (t *trunks) deadline() clock.Time {
	if t == nil {
		return clock.Never
	}
	return t.machine.Deadline()
}

// took takes a frame that came in at a port, if it is a message of a neighbour.
func (t *trunks) took(now clock.Time, in int, frame []byte) bool {
	if t == nil || !linkstate.IsMessage(frame) {
		return false
	}
	if trunk := slices.Index(t.own, in); trunk >= 0 {
		t.machine.Receive(now, trunk, frame)
	}
	return true // a host's message goes nowhere
}

// tick looks at the carriers, and makes the routes again if something has changed. It reports whether
// the switch must send its message on all of its trunks.
func (t *trunks) tick(now clock.Time) (send bool) {
	for i, port := range t.own {
		if port < 0 {
			continue
		}
		p := &t.ports.list[port]
		if carrier := p.io != nil && p.carrier; carrier != t.carrier[i] {
			t.carrier[i] = carrier
			t.machine.Carrier(now, i, carrier)
		}
	}
	if now >= t.machine.Deadline() {
		send = t.machine.Tick(now)
	}
	for i := range t.trunks {
		if up := t.machine.Up(i); up != t.up[i] {
			t.up[i], t.fresh, t.want = up, false, nil
			t.ports.log.Log(context.Background(), levelOf(up), "state of a trunk", "trunk", t.trunks[i].Name(), "up", up)
		}
	}
	if !t.fresh || t.growing {
		t.grow(now)
	}
	if rack := t.described(); rack != t.rack {
		t.rack, t.fresh = rack, false
	}
	if !t.fresh {
		t.fresh = true
		t.out.Route(t.routes())
	}
	return send
}

// settleTree is how long a trunk waits before it joins the tree: until all switches have heard why, so
// that the trunk in place of which it joins has left the tree everywhere.
const settleTree = 2 * linkstate.Interval

// grow lets the trunks join and leave the tree.
func (t *trunks) grow(now clock.Time) {
	if t.want == nil {
		t.want = append([]int{}, t.machine.Routes().Tree...)
	}
	t.growing = false
	for i, port := range t.own {
		switch in := port >= 0 && slices.Contains(t.want, i); {
		case !in:
			t.fresh = t.fresh && !t.tree[i]
			t.tree[i], t.joins[i] = false, 0
		case t.tree[i]:
		case t.joins[i] == 0:
			t.joins[i], t.growing = now.Add(settleTree), true
		case now < t.joins[i]:
			t.growing = true
		default:
			t.tree[i], t.fresh = true, false
		}
	}
}

// first returns the first port that leads to another switch; -1 if there is none.
func (t *trunks) first() int {
	if i := slices.IndexFunc(t.own, func(port int) bool { return port >= 0 }); i >= 0 {
		return t.own[i]
	}
	return -1
}

// routes makes the routes of all hosts and switches of the rack.
func (t *trunks) routes() pipeline.Routes {
	w := apps.Wiring{Switch: t.name, Ports: len(t.ports.list), Trunks: t.own, Host: func(name string) int { return slices.Index(t.ports.hosts, name) }}
	out := w.Routes(t.rack, t.machine.Routes().Hops, t.tree)
	out.Groups = t.groups
	return out
}

// isTrunk reports whether a port leads to another switch.
func (t *trunks) isTrunk(port int) bool { return t != nil && slices.Contains(t.own, port) }

// part puts hosts behind other switches into groups of a partition.
func (t *trunks) part(groups map[wire.MAC]int) {
	t.groups, t.fresh = groups, false
}

// status lists the trunks of the rack.
func (t *trunks) status() (list []Trunk) {
	if t == nil {
		return nil
	}
	for i, c := range t.trunks {
		joining := t.joins[i] != 0 && !t.tree[i]
		list = append(list, Trunk{c.Name(), t.up[i] && !joining})
	}
	return list
}

// exchange keeps the routes fresh, and sends the switch's message when it is due.
func (t *traffic) exchange() {
	k := t.ports.trunks
	if k == nil || !k.tick(t.now) {
		return
	}
	b := k.machine.Append(t.scratch.Alloc(maxMessage)[:0], k.source())
	for _, port := range k.own {
		if port >= 0 {
			t.toHost(port, packetio.Frame{Data: b}, "")
		}
	}
}

// maxMessage bounds the length of a message.
const maxMessage = 1024

// source is the address from which the switch sends messages.
func (t *trunks) source() wire.MAC {
	mac := t.rack.Switch.MAC
	mac[0], mac[1] = 2, 'L'
	return mac
}

// rackSwitch returns the name of the switch in the rack's description; "" if there is none.
func (d *Daemon) rackSwitch() string {
	if r := d.programs.described.Load(); r != nil {
		return r.Switch.Name
	}
	return ""
}
