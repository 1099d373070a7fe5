package interop_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// speakerPlan is the configuration of the peer "speaker", as JSON on its standard input.
type speakerPlan struct {
	plan
	// Part is one of the keys of parts.
	Part string `json:"part"`
	// To is the address of the other end, for a part that is a client.
	To    netip.Addr `json:"to"`
	Count int        `json:"count"` // number of messages or connections
	Size  int        `json:"size"`  // size of messages, in bytes
	Port  string     `json:"port"`
}

// speaker is our end of a program over librdmacm, with a NIC of its own.
type speaker struct {
	speakerPlan
	dev *device.Device
	ctx verbs.Context
	rt  verbs.Runtime
	cm  *rdmacm.CM
	out io.Writer
	// words are the lines on standard input after the plan; "die" crashes the speaker at once,
	// whatever its part is doing.
	words chan string
}

// parts are the roles of our ends. The spec reads their standard output.
var parts = map[string]func(s *speaker) error{
	"ucmatose server": (*speaker).matoseServer, "ucmatose client": (*speaker).matoseClient,
	"udaddy server": (*speaker).udaddyServer, "udaddy client": (*speaker).udaddyClient,
	"perftest server": (*speaker).perfServer,
	"hold":            (*speaker).hold, "flood": (*speaker).flood, "dial": (*speaker).dial, "survivor": (*speaker).survivor,
	"cycles": (*speaker).cycles, "dial cycles": (*speaker).dialCycles,
}

// speak runs a part inside a host of the rack.
func speak(in io.Reader, out io.Writer) error {
	s := &speaker{out: out}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&s.speakerPlan); err != nil {
		return err
	}
	s.words = make(chan string, 4)
	go listen(io.MultiReader(dec.Buffered(), in), s.words)
	part, ok := parts[s.Part]
	if !ok {
		return fmt.Errorf("no part %q", s.Part)
	}
	var err error
	if s.dev, err = openNIC(&s.plan); err != nil {
		return err
	}
	defer s.dev.Close()
	s.ctx = s.dev.Context()
	s.rt = s.ctx.Runtime()
	if s.cm, err = rdmacm.NewCM(rdmacm.CMConfig{Context: s.ctx, Backlog: maxRequests}); err != nil {
		return err
	}
	if err := part(s); err != nil {
		return fmt.Errorf("%s: %w", s.Part, err)
	}
	if err := errors.Join(s.cm.Close(), s.ctx.Close()); err != nil {
		return err
	}
	return s.clean()
}

// listen hands the spec's words to the part; it executes "die" itself.
func listen(in io.Reader, words chan<- string) {
	for r := bufio.NewScanner(in); r.Scan(); {
		switch r.Text() {
		case "":
		case "die":
			_ = unix.Kill(os.Getpid(), unix.SIGKILL) // it does not return
		default:
			words <- r.Text()
		}
	}
}

// clean expects that no connection is left, except in time-wait.
func (s *speaker) clean() error {
	var live int
	var err error
	for end := s.in(speakLimit); s.rt.Now() < end; s.rt.Sleep(10 * time.Millisecond) {
		s.dev.With(func(e *engine.Engine) {
			var g *engine.GSI
			if g, err = e.GSI(); err == nil {
				live, _ = g.Conns()
			}
		})
		if err != nil || live == 0 {
			break
		}
	}
	if err == nil && live > 0 {
		err = fmt.Errorf("%d connections are left", live)
	}
	if err == nil {
		s.say("clean")
	}
	return err
}

// maxRequests is how many connection requests may wait at once, for programs that make all their
// connections at the same time.
const maxRequests = 512

// speakLimit is how long each step may take; the guest is slow.
const speakLimit = 60 * time.Second

func (s *speaker) in(d time.Duration) clock.Time { return s.rt.Now().Add(d) }

func (s *speaker) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// mouth is one queue pair of a speaker with its memory and, for connections, receives that are
// posted before it is connected.
type mouth struct {
	s            *speaker
	pd           verbs.PD
	sends, recvs verbs.CQ
	mr           verbs.MR
	qp           verbs.QP
	srq          verbs.SRQ
	slot         int
}

// newMouth makes a queue pair. Receives are posted to a shared receive queue, so that they exist
// before the first message of a peer that sends at once.
func (s *speaker) newMouth(slot, slots int) (*mouth, error) {
	m := &mouth{s: s, slot: slot}
	var errs [4]error
	m.pd, errs[0] = s.ctx.AllocPD()
	m.sends, errs[1] = s.ctx.CreateCQ(2*slots + 16)
	m.recvs, errs[2] = s.ctx.CreateCQ(2*slots + 16)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.mr, errs[0] = m.pd.RegMR(nil, slot*(slots+1), allAccess)
	m.srq, errs[1] = m.pd.CreateSRQ(verbs.SRQInit{MaxWR: slots})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	if m.qp, err = m.pd.CreateQP(verbs.QPInit{SendCQ: m.sends, RecvCQ: m.recvs, SRQ: m.srq, MaxSendWR: slots + 1}); err != nil {
		return nil, err
	}
	for i := range slots {
		err = errors.Join(err, m.recv(i))
	}
	return m, err
}

// recv posts the receive of a slot; slot 0 of the memory is for sends.
func (m *mouth) recv(i int) error {
	return m.srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{m.mr.SGE((i+1)*m.slot, m.slot)}})
}

// next waits for one completion. errEnded is the flush at the end of the connection.
func (m *mouth) next(cq verbs.CQ) (verbs.WC, error) {
	var wc [1]verbs.WC
	if err := cq.Wait(m.s.in(speakLimit)); err != nil {
		return wc[0], err
	}
	if _, err := cq.Poll(wc[:]); err != nil {
		return wc[0], err
	}
	switch wc[0].Status {
	case verbs.Success:
		return wc[0], nil
	case verbs.WRFlushErr:
		return wc[0], errEnded
	}
	return wc[0], fmt.Errorf("completion %v", wc[0].Status)
}

// send posts a SEND of n bytes, and waits for its completion.
func (m *mouth) send(n int) error {
	if err := m.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{m.mr.SGE(0, n)}}); err != nil {
		return err
	}
	_, err := m.next(m.sends)
	return err
}

// close destroys the queue pair and its memory.
func (m *mouth) close() error {
	return errors.Join(m.qp.Destroy(), m.srq.Destroy(), m.mr.Dereg(), m.pd.Dealloc(), m.sends.Destroy(), m.recvs.Destroy())
}
