package hostd

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/nldev"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// netlinkNICs are all NICs of a host, the first one first.
type netlinkNICs []*Host

// source describes the NICs.
func (all netlinkNICs) source(seesPIDs, seesKeys bool) nldev.Source {
	return nldev.Source{
		SeesPIDs: seesPIDs,
		SeesKeys: seesKeys,
		Devices: func() (out []nldev.Device) {
			for i, n := range all {
				out = append(out, n.shown.device(uint32(i)))
			}
			return out
		},
		Objects:  func(device uint32, k nldev.Kind) []nldev.Object { return all.objects(int(device), k) },
		Counters: func(device uint32) []nldev.Counter { return countersOf(all[device].dev.Counters()) },
	}
}

// countersOf converts counters of a NIC.
func countersOf(c metrics.NIC) (out []nldev.Counter) {
	for _, s := range metrics.Samples(&c) {
		out = append(out, nldev.Counter{Name: s.Name, Value: s.Value})
	}
	return out
}

// device describes the NIC as the device with an index.
func (p *livePort) device(index uint32) nldev.Device {
	var d verbs.DeviceAttr
	p.dev.With(func(e *engine.Engine) { d = e.Device() })
	d.PortDown = !p.link.LinkUp()
	state, gid := uverbs.PortOf(&d), verbs.LinkLocalGID(d.MAC)
	guid := binary.BigEndian.Uint64(gid[8:])
	out := nldev.Device{
		Index: index, Name: p.files.at.Device, Firmware: uverbs.Firmware, NodeGUID: guid, ImageGUID: guid, Caps: uverbs.Capabilities | uverbs.CapabilitiesEx,
		Port:    nldev.Port{State: state.Logical, Physical: state.Physical},
		Chardev: "uverbs" + strconv.Itoa(p.files.at.Nth), ChardevABI: uverbs.RingVersion,
	}
	if link, err := nl.LinkByName(p.netns, p.ifname); p.real && err == nil {
		out.Port.Ifname, out.Port.Ifindex = p.ifname, uint32(link.Index)
	}
	return out
}

// netlinkOwner converts the owner of an object. Objects without one are the daemon's own.
func netlinkOwner(o *engine.Owner) nldev.Owner {
	if o == nil {
		return nldev.Owner{Kernel: "rdmalab"}
	}
	return nldev.Owner{PID: uint32(o.PID)}
}

// objects lists the objects of a kind of one of the NICs.
func (all netlinkNICs) objects(device int, k nldev.Kind) (out []nldev.Object) {
	l := all[device].lists
	switch k {
	case nldev.PD:
		var pds []engine.PDInfo
		l.dev.With(func(e *engine.Engine) { pds = e.Listing().PDs() })
		for _, p := range pds {
			out = append(out, nldev.Object{Number: p.Number, Owner: netlinkOwner(p.Owner), Uses: uint64(p.Uses)})
		}
	case nldev.SRQ:
		out = l.netlinkSRQs()
	case nldev.CMID:
		out = l.netlinkIDs(all[0].ipc.Identifiers(device))
	case nldev.Context:
		for _, c := range all[device].ipc.Clients() {
			out = append(out, nldev.Object{Number: uint32(c.ID), Owner: nldev.Owner{PID: uint32(c.PID)}})
		}
	case nldev.QP:
		live, _ := l.qps()
		for i := range live {
			out = append(out, netlinkQP(&live[i]))
		}
	case nldev.CQ:
		var all []engine.CQInfo
		l.dev.With(func(e *engine.Engine) { all = e.Listing().CQs() })
		for _, c := range all {
			out = append(out, nldev.Object{Number: c.Number, Owner: netlinkOwner(c.Owner), Uses: uint64(c.QPs), Depth: uint32(c.Depth)})
		}
	case nldev.MR:
		var all []engine.MRInfo
		l.dev.With(func(e *engine.Engine) { all = e.Listing().MRs() })
		for _, r := range all {
			if !r.Window {
				out = append(out, nldev.Object{
					Number: r.Number, Owner: netlinkOwner(r.Owner), PD: uint32(r.PD), Memory: nldev.Memory{LKey: r.LKey, RKey: r.RKey, Length: r.Size},
				})
			}
		}
	}
	slices.SortFunc(out, nldev.ByNumber)
	return out
}

// Services as ibv_query_qp has them.
const (
	typeRC = 2
	typeUC = 3
	typeUD = 4

	typeXRCInitiator = 9
	typeXRCTarget    = 10
)

func netlinkQP(q *engine.QPInfo) nldev.Object {
	kind := map[verbs.QPType]uint8{
		verbs.RC: typeRC, verbs.UC: typeUC, verbs.UD: typeUD, verbs.XRCInitiator: typeXRCInitiator, verbs.XRCTarget: typeXRCTarget,
	}[q.Type]
	return nldev.Object{
		Number: uint32(q.QPN), Owner: netlinkOwner(q.Owner), PD: q.PD,
		Queue: nldev.Queue{
			Type: kind, State: uint8(q.State), Connected: q.Type != verbs.UD, Remote: uint32(q.RTR.DestQPN),
			SendPSN: uint32(q.SendPSN), RecvPSN: uint32(q.RecvPSN),
		},
	}
}

func (l listings) netlinkSRQs() (out []nldev.Object) {
	var srqs []engine.SRQInfo
	l.dev.With(func(e *engine.Engine) { srqs = e.Listing().SRQs() })
	live, _ := l.qps()
	users := make(map[uint32][]uint32)
	for i := range live {
		users[live[i].SRQ] = append(users[live[i].SRQ], uint32(live[i].QPN))
	}
	for _, s := range srqs {
		out = append(out, nldev.Object{Number: s.Number, Owner: netlinkOwner(s.Owner), PD: s.PD, Users: users[s.Number]})
	}
	return out
}

// stateOfID converts states of identifiers into those of the kernel (enum rdma_cm_state).
var stateOfID = map[ucma.State]uint8{
	ucma.Resolved: 2, ucma.Routed: 4, ucma.Connecting: 5, ucma.Answered: 5, ucma.Requested: 5, ucma.Accepted: 5, ucma.Established: 5,
	ucma.Disconnecting: 6, ucma.Parted: 6, ucma.Waiting: 6, ucma.Bound: 7, ucma.Listening: 8, ucma.Ended: 10,
}

// netlinkIDs converts identifiers. Handles are of a program; tools want numbers of the device, so these
// are given in the order of the list.
func (l listings) netlinkIDs(ids []serve.IdentifierStatus) (out []nldev.Object) {
	var conns []engine.CMInfo
	l.dev.With(func(e *engine.Engine) { conns, _ = e.Listing().CMs() })
	for i, x := range ids {
		c := nldev.Conn{Space: x.Space, State: stateOfID[x.State], Src: x.Src, Dst: x.Dst, Type: x.QPType}
		for _, conn := range conns {
			if x.Conn != 0 && conn.ID == x.Conn {
				c.QP = uint32(conn.QPN)
			}
		}
		out = append(out, nldev.Object{Number: uint32(i), Owner: nldev.Owner{PID: uint32(x.PID)}, Conn: c})
	}
	return out
}
