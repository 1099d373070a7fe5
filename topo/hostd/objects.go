package hostd

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// OwnerStatus says to which process an object belongs.
type OwnerStatus struct {
	PID  int32  `json:"pid,omitempty"` // in the daemon's PID namespace; 0 if the process is in another one
	Name string `json:"name"`
}

func (o OwnerStatus) String() string {
	switch {
	case o.PID == 0:
		return o.Name
	case o.Name == "":
		return fmt.Sprint(o.PID)
	}
	return fmt.Sprintf("%s/%d", o.Name, o.PID)
}

// DaemonOwner is the owner of the objects of the host's own services, jobs and stores.
const DaemonOwner = "host"

func ownerOf(o *engine.Owner) OwnerStatus {
	if o == nil {
		return OwnerStatus{Name: DaemonOwner}
	}
	return OwnerStatus{o.PID, o.Name}
}

// WorkStatus describes a send work request.
type WorkStatus struct {
	// Number counts the posts of the queue pair since RESET, from 1.
	Number uint64 `json:"number"`
	ID     uint64 `json:"wrId"`
	Op     string `json:"op"`
	Length uint32 `json:"length"` // bytes
	// Addr and RKey name the peer's memory; 0 for a SEND.
	Addr    uint64 `json:"addr,omitempty"`
	RKey    uint32 `json:"rkey,omitempty"`
	PSN     uint32 `json:"psn"`     // its first PSN
	Packets uint32 `json:"packets"` // of a READ those of the response
}

// NoteStatus is one case that a queue pair has noted: a retransmission, a refusal, a failure.
type NoteStatus struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// Code is the number of the reason, which completions have as vendor_err; 0 if there is none.
	Code uint32 `json:"code,omitempty"`
	Text string `json:"text"` // a sentence without a full stop
	// Because is the reason alone.
	Because string `json:"because,omitempty"`
	Status  string `json:"status,omitempty"` // of the completion
	// Work is the work request of a requester's note.
	Work *WorkStatus `json:"work,omitempty"`
	// Packet names the packet at PSN First by its place in the work request.
	Packet string `json:"packet,omitempty"`
	Opcode string `json:"opcode,omitempty"` // of a request that arrived
	Answer string `json:"answer,omitempty"` // by which the responder refused it
	First  uint32 `json:"first"`            // the PSNs that the note is about
	Last   uint32 `json:"last"`
	Times  uint32 `json:"times,omitempty"`
	Tries  uint8  `json:"tries,omitempty"`
	Left   uint8  `json:"left"`
	// Packets is how many packets were sent again, of a note "healed".
	Packets uint32        `json:"packets,omitempty"`
	Wait    time.Duration `json:"wait,omitempty"`
	// Since is when the work request was posted, or when its first retry was.
	Since time.Time `json:"since,omitzero"`
}

// FlightStatus is what a queue pair of RC has in flight.
type FlightStatus struct {
	// InFlight packets are in flight; Window may be now, and MaxWindow at most.
	InFlight  int `json:"inFlight"`
	Window    int `json:"window"`
	MaxWindow int `json:"maxWindow"`
	// Recovery is how the connection recovers from losses, for selective retransmission alone: irn or
	// rack. Ahead is how many packets may be ahead of a hole.
	Recovery string `json:"recovery,omitempty"`
	Ahead    int    `json:"ahead,omitempty"`
}

// QPObject is a queue pair of a listing.
type QPObject struct {
	QPStatus
	Owner OwnerStatus `json:"owner"`
	// Gone: it was destroyed or reset, or its NIC crashed; the rest is its last state.
	Gone   bool   `json:"gone,omitempty"`
	PD     uint32 `json:"pd"`
	SendCQ uint32 `json:"sendCq"`
	RecvCQ uint32 `json:"recvCq"`
	SRQ    uint32 `json:"srq,omitempty"`
	// Una is the oldest PSN that is not acknowledged, Sent the PSN behind the highest that was sent.
	Una  uint32 `json:"una"`
	Sent uint32 `json:"sent"`
	FlightStatus
	// Oldest is the oldest send work request that is not complete.
	Oldest     *WorkStatus   `json:"oldest,omitempty"`
	Retries    uint8         `json:"retriesLeft"`
	RNRRetries uint8         `json:"rnrRetriesLeft"`
	Waits      bool          `json:"waits,omitempty"` // after an RNR NAK
	Access     string        `json:"access,omitempty"`
	Totals     reason.Totals `json:"totals"`
	// LastError is the case that ended the queue pair, or else the newest refused verb; nil if there is
	// none. An end that a program or its peer has asked for is no error. Notes are its newest cases,
	// oldest first.
	LastError *NoteStatus  `json:"lastError,omitempty"`
	Notes     []NoteStatus `json:"notes,omitempty"`
}

// MRObject is a region or a memory window of a listing.
type MRObject struct {
	Number  uint32      `json:"number"`
	Owner   OwnerStatus `json:"owner"`
	PD      uint32      `json:"pd"`
	Addr    uint64      `json:"addr"`
	Length  uint64      `json:"length"` // bytes
	Access  string      `json:"access"`
	LKey    uint32      `json:"lkey,omitempty"`
	RKey    uint32      `json:"rkey"`
	Valid   bool        `json:"valid"` // the keys can be used
	Kind    string      `json:"kind"`  // region, device memory or window
	Windows int         `json:"windows,omitempty"`
	ForQPN  uint32      `json:"forQpn,omitempty"` // the queue pair for whose peer alone a window is
}

// CQObject is a completion queue of a listing.
type CQObject struct {
	Number  uint32      `json:"number"`
	Owner   OwnerStatus `json:"owner"`
	Depth   int         `json:"depth"`
	Queued  int         `json:"queued"` // completions that wait to be polled
	QPs     []uint32    `json:"qps"`    // the queue pairs that use it
	Overrun bool        `json:"overrun"`
}

// CMObject is a connection of the connection manager of a listing.
type CMObject struct {
	ID       uint32 `json:"id"`
	RemoteID uint32 `json:"remoteId,omitempty"`
	State    string `json:"state"`
	Local    string `json:"local"`
	Peer     string `json:"peer"`
	Service  string `json:"service"`
	QPN      uint32 `json:"qpn,omitempty"`
	PeerQPN  uint32 `json:"peerQpn,omitempty"`
	End      string `json:"end,omitempty"` // how it ended, with the reason of a refusal
}

// Objects is the answer to PathQPs, PathMRs, PathCQs and PathCMs. Each fills the list that it names.
type Objects struct {
	Name string `json:"name"`
	// Time is the daemon's time of the answer.
	Time time.Time  `json:"time"`
	QPs  []QPObject `json:"qps,omitempty"`
	MRs  []MRObject `json:"mrs,omitempty"`
	CQs  []CQObject `json:"cqs,omitempty"`
	CMs  []CMObject `json:"cms,omitempty"`
	// Services are the service IDs for which programs of the host listen.
	Services []string `json:"services,omitempty"`
}

// listings lists the objects of a host's NIC.
type listings struct {
	host string
	dev  *device.Device
	time verbs.Runtime                  // has the NIC's clock
	rack *atomic.Pointer[rackfile.Rack] // says how slow that clock is
}

func (l listings) routes(m *control.Mux) {
	for path, fill := range map[string]func(*Objects){PathQPs: l.listQPs, PathMRs: l.listMRs, PathCQs: l.listCQs, PathCMs: l.listCMs} {
		control.Handle(m, "GET "+path, func(*http.Request, none) (Objects, error) {
			o := Objects{Name: l.host, Time: time.Now()}
			fill(&o)
			return o, nil
		})
	}
}

// qps copies the queue pairs of the NIC, page by page, and those that have gone.
func (l listings) qps() (live, gone []engine.QPInfo) {
	var numbers []wire.QPN
	l.dev.With(func(e *engine.Engine) { numbers = e.Listing().QPNumbers() })
	slices.Sort(numbers)
	for page := range slices.Chunk(numbers, engine.QPPage) {
		l.dev.With(func(e *engine.Engine) { live = append(live, e.Listing().QPs(page)...) })
	}
	l.dev.With(func(e *engine.Engine) { gone = slices.Clone(e.Listing().FormerQPs()) })
	return live, gone
}

func (l listings) listQPs(o *Objects) {
	live, gone := l.qps()
	when := l.wallClock()
	for _, q := range slices.Concat(gone, live) {
		o.QPs = append(o.QPs, qpObject(&q, when))
	}
}

// wallClock returns a function that converts the device's time.
func (l listings) wallClock() func(clock.Time) time.Time {
	return wallAt(time.Now(), l.time.Now(), l.rack.Load().Factor())
}

// wallAt returns a function that converts times of a clock that shows now at the time wall, and that is
// slow times as slow as that of the wall. The time 0 has no counterpart.
func wallAt(wall time.Time, now clock.Time, slow int) func(clock.Time) time.Time {
	return func(t clock.Time) time.Time {
		if t == 0 {
			return time.Time{}
		}
		return wall.Add(t.Sub(now) * time.Duration(slow))
	}
}

func qpObject(q *engine.QPInfo, when func(clock.Time) time.Time) QPObject {
	o := QPObject{
		QPStatus: describeQP(&q.QPAttr), Owner: ownerOf(q.Owner), Gone: q.Gone, PD: q.PD, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ, SRQ: q.SRQ,
		Una: uint32(q.Una), Sent: uint32(q.Sent),
		FlightStatus: FlightStatus{InFlight: q.InFlight, Window: q.Window, MaxWindow: q.MaxWindow, Recovery: q.Recovery, Ahead: q.Ahead},
		Retries:      q.Retries, RNRRetries: q.RNRRetries, Waits: q.Waits, Totals: q.Totals,
	}
	o.Ring = q.Ring
	if q.State != verbs.StateReset {
		o.Access = mem.Rights(q.Init.Access)
	}
	if q.Oldest.Number != 0 {
		o.Oldest = workStatus(&q.Oldest)
	}
	for i := range q.Notes {
		o.Notes = append(o.Notes, noteStatus(&q.Notes[i], when))
		if q.Notes[i].Kind == reason.Denied {
			o.LastError = &o.Notes[len(o.Notes)-1]
		}
	}
	if q.End != nil && !q.End.Orderly() {
		end := noteStatus(q.End, when)
		o.LastError = &end
	}
	return o
}

func workStatus(w *reason.WorkRequest) *WorkStatus {
	return &WorkStatus{
		Number: w.Number, ID: w.ID, Op: w.Op.String(), Length: w.Length, Addr: w.Addr, RKey: w.RKey, PSN: uint32(w.First), Packets: w.Packets,
	}
}

func noteStatus(n *reason.Note, when func(clock.Time) time.Time) NoteStatus {
	s := NoteStatus{
		At: when(n.At), Kind: n.Kind.String(), Code: uint32(n.Code), Text: n.String(), First: uint32(n.First), Last: uint32(n.Last),
		Times: n.Times, Tries: n.Tries, Left: n.Left, Packets: n.Packets, Wait: n.Wait,
	}
	if n.Code != reason.None || n.Kind == reason.Denied {
		s.Because = n.Because()
	}
	if n.WR.Number != 0 || n.Kind == reason.Failed {
		s.Work, s.Packet = workStatus(&n.WR), n.WR.Packet(n.First)
	}
	switch n.Kind {
	case reason.Failed:
		s.Status = n.Status.String()
		s.Since = when(n.Since)
	case reason.Healed:
		s.Since = when(n.Since)
	case reason.Missed, reason.Refused, reason.Waited, reason.Repeated, reason.Dropped:
		s.Opcode = n.Opcode.String()
		if n.Syndrome != 0 {
			s.Answer = n.Syndrome.String()
		}
	case reason.SentAgain, reason.Ended, reason.Denied:
	}
	return s
}

func (l listings) listMRs(o *Objects) {
	var all []engine.MRInfo
	l.dev.With(func(e *engine.Engine) { all = e.Listing().MRs() })
	for _, r := range all {
		m := MRObject{
			Number: r.Number, Owner: ownerOf(r.Owner), PD: uint32(r.PD), Addr: r.Base, Length: r.Size, Access: mem.Rights(r.Access), LKey: r.LKey, RKey: r.RKey,
			Valid: r.Valid, Kind: "region", Windows: r.Windows, ForQPN: uint32(r.ForPeerOf),
		}
		switch {
		case r.Window:
			m.Kind = "window"
		case r.Zero:
			m.Kind = "device memory"
		}
		o.MRs = append(o.MRs, m)
	}
}

func (l listings) listCQs(o *Objects) {
	live, _ := l.qps()
	var all []engine.CQInfo
	l.dev.With(func(e *engine.Engine) { all = e.Listing().CQs() })
	users := make(map[uint32][]uint32)
	for i := range live {
		q := &live[i]
		users[q.SendCQ] = append(users[q.SendCQ], uint32(q.QPN))
		if q.RecvCQ != q.SendCQ {
			users[q.RecvCQ] = append(users[q.RecvCQ], uint32(q.QPN))
		}
	}
	for _, c := range all {
		o.CQs = append(o.CQs, CQObject{Number: c.Number, Owner: ownerOf(c.Owner), Depth: c.Depth, Queued: c.Queued, QPs: users[c.Number], Overrun: c.Overrun})
	}
}

func (l listings) listCMs(o *Objects) {
	var conns []engine.CMInfo
	var services []mad.ServiceID
	l.dev.With(func(e *engine.Engine) { conns, services = e.Listing().CMs() })
	for _, c := range conns {
		x := CMObject{
			ID: uint32(c.ID), RemoteID: uint32(c.RemoteID), State: c.State.String(), Local: c.Local.String(), Peer: c.Peer.String(),
			Service: fmt.Sprintf("%#x", uint64(c.Service)), QPN: uint32(c.QPN), PeerQPN: uint32(c.RemoteQPN),
		}
		if c.End != 0 {
			x.End = c.End.String()
		}
		if c.Reject != nil {
			x.End = strings.TrimSpace(x.End + ": " + c.Reject.Reason.String())
		}
		o.CMs = append(o.CMs, x)
	}
	for _, s := range services {
		o.Services = append(o.Services, fmt.Sprintf("%#x", uint64(s)))
	}
}
