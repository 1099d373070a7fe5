package switchd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio/tap"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Partition is the body of POST /partition. With one group, its hosts are cut from all others. With several, they
// are cut from each other, and hosts in none reach everybody.
type Partition struct {
	Groups [][]string `json:"groups"`
}

// Healed is what DELETE /faults answers.
type Healed struct {
	// Rules is how many rules were at work and are no more.
	Rules int `json:"rules"`
}

// none is an absent body or answer.
type none struct{}

// Mux serves the daemon:
//
//	GET    /status                what ports, faults and captures there are
//	GET    /counters              per port and in all
//	GET    /flows                 per RoCEv2 flow
//	GET    /faults                rules with their hits
//	POST   /faults                installs a fault.Rule, answers it with its id
//	DELETE /faults/{id}           removes one
//	DELETE /faults?link=cn0       removes those of a link, or all
//	POST   /partition             keeps groups of hosts apart
//	DELETE /partition             mends that
//	GET    /capture?link=cn0&dir=up&snaplen=128&for=10s   streams pcapng, without
//	                              for until the client goes; &commented=1 only packets
//	                              that a fault or the program touched
//	POST   /ports                 adds the port of a guest
//	DELETE /ports/{host}          takes it away
//	GET    /past                  the last packets as pcapng, if they are kept
//	GET    /program               which program runs
//	PUT    /program               runs another in its place, with rules
//	GET    /program/counters      what its parts counted
//	GET    /budget                what it would take of a switching chip
//	GET    /rules                 rules in force
//	POST   /rules                 adds a rule, answers it with its id
//	PUT    /rules                 puts others in their place
//	DELETE /rules/{id}            removes one
//	GET    /connections           rows, what was moved, own connections
//	POST   /connections           adopts an own connection that was made elsewhere
//	DELETE /connections/{server}/{shard}   ends one
//	GET    /tables                how full they are
//	DELETE /tables/{name}         clears one
//	GET    /macs                  learnt addresses
func (d *Daemon) Mux() *control.Mux {
	m := new(control.Mux)
	control.Handle(m, "GET /status", func(*http.Request, none) (Status, error) { return d.Status() })
	control.Handle(m, "GET /counters", func(*http.Request, none) (Counters, error) { return d.Counters() })
	control.Handle(m, "GET /flows", func(*http.Request, none) ([]pipeline.Flow, error) { return d.Flows() })
	control.Handle(m, "GET /faults", func(*http.Request, none) ([]fault.Status, error) { return d.Faults() })
	control.Handle(m, "POST /faults", func(_ *http.Request, r fault.Rule) (fault.Rule, error) {
		r, err := d.Inject(r)
		return r, answer(err)
	})
	control.Handle(m, "DELETE /faults/{id}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(d.RemoveFault(r.PathValue("id")))
	})
	control.Handle(m, "DELETE /faults", func(r *http.Request, _ none) (Healed, error) {
		n, err := d.Heal(r.URL.Query().Get("link"))
		return Healed{n}, answer(err)
	})
	control.Handle(m, "POST /partition", func(_ *http.Request, p Partition) (none, error) {
		return none{}, answer(d.SetPartition(p.Groups))
	})
	control.Handle(m, "DELETE /partition", func(*http.Request, none) (none, error) {
		return none{}, answer(d.SetPartition(nil))
	})
	m.HandleFunc("GET /capture", d.serveCapture)
	m.HandleFunc("GET /past", d.servePast)
	d.handleGuests(m)
	d.handleBox(m)
	return m
}

// answer gives an error the HTTP status of its kind.
func answer(err error) error {
	var rule *fault.RuleError
	status := 0
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rule), errors.Is(err, fault.ErrNotOnLink), errors.Is(err, errPartition), errors.Is(err, errRule):
		status = http.StatusBadRequest
	case errors.Is(err, errNoBox), errors.Is(err, errTaken), errors.Is(err, errBound):
		status = http.StatusConflict
	case errors.Is(err, fault.ErrUnknownLink), errors.Is(err, fault.ErrUnknownRule), errors.Is(err, tap.ErrUnknownLink), errors.Is(err, errGone):
		status = http.StatusNotFound
	case errors.Is(err, fault.ErrDuplicateID):
		status = http.StatusConflict
	case errors.Is(err, fault.ErrTooMany), errors.Is(err, tap.ErrTooMany), errors.Is(err, errBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, ErrStopped):
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusInternalServerError
	}
	return control.Errorf(status, "%v", err)
}

// Faults lists the rules and what they did.
func (d *Daemon) Faults() (list []fault.Status, err error) {
	err = d.Do(func() { list = d.plan.List(d.now) })
	return list, err
}

// Inject installs a rule.
func (d *Daemon) Inject(r fault.Rule) (out fault.Rule, err error) {
	if derr := d.Do(func() { out, err = d.plan.Add(d.now, r) }); derr != nil {
		return r, derr
	}
	return out, err
}

// RemoveFault removes a rule.
func (d *Daemon) RemoveFault(id string) (err error) {
	if derr := d.Do(func() { err = d.plan.Remove(id) }); derr != nil {
		return derr
	}
	return err
}

// Heal removes the rules of a link, or all for "". It returns how many were at work.
func (d *Daemon) Heal(link string) (n int, err error) {
	if derr := d.Do(func() { n, err = d.plan.Heal(d.now, link) }); derr != nil {
		return 0, derr
	}
	return n, err
}

// activeRules maps hosts to the ids of the rules at work on their links. Loop only.
func (d *Daemon) activeRules() map[string][]string {
	m := make(map[string][]string)
	for _, r := range d.plan.List(d.now) {
		if r.State == fault.Active {
			m[r.Link] = append(m[r.Link], r.ID)
		}
	}
	return m
}

// errPartition says that groups make no sense.
var errPartition = errors.New("partition")

// SetPartition keeps groups of hosts apart; none mends all.
func (d *Daemon) SetPartition(groups [][]string) error {
	var ports []int
	var err error
	derr := d.Do(func() {
		if ports, err = d.portGroups(groups); err == nil {
			d.groups = groups
			d.sw.Partition(ports)
		}
	})
	return errors.Join(derr, err)
}

// portGroups turns groups of names into a group number for each port. Loop only.
func (d *Daemon) portGroups(groups [][]string) ([]int, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	of := slices.Repeat([]int{-1}, len(d.hosts))
	for g, names := range groups {
		if len(names) == 0 {
			return nil, fmt.Errorf("%w: a group is empty", errPartition)
		}
		for _, name := range names {
			i := slices.Index(d.hosts, name)
			switch {
			case i < 0:
				return nil, fmt.Errorf("%w: %w %q; there are %v", errPartition, fault.ErrUnknownLink, name, d.hosts)
			case of[i] >= 0 && of[i] != g:
				return nil, fmt.Errorf("%w: %s is in two groups", errPartition, name)
			}
			of[i] = g
		}
	}
	if len(groups) == 1 {
		for i := range of {
			if of[i] < 0 {
				of[i] = 1
			}
		}
	}
	return of, nil
}

// serveCapture streams pcapng until the client or the daemon goes.
func (d *Daemon) serveCapture(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o := tap.Options{Links: q["link"], Only: q.Get("dir")}
	if s := q.Get("snaplen"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			refuseCapture(w, fmt.Errorf("snaplen %q is no number of bytes", s))
			return
		}
		o.Snaplen = n
	}
	o.Commented = q.Get("commented") != ""
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	if s := q.Get("for"); s != "" {
		lasting, err := time.ParseDuration(s)
		if err != nil || lasting <= 0 {
			refuseCapture(w, fmt.Errorf("for=%q is no time to capture", s))
			return
		}
		timer := time.AfterFunc(lasting, cancel)
		defer timer.Stop()
	}
	rc := http.NewResponseController(w)
	started := false
	o.Flush = func() {
		started = true
		_ = rc.Flush() // the client has gone: the next write says so
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	sum, err := d.hub.Capture(ctx, w, o)
	if err != nil && !started {
		refuseCapture(w, err)
		return
	}
	d.log.Printf("capture of %v ended: %d packets, %d lost", o.Links, sum.Written, sum.Lost)
}

// servePast sends the last packets, if they are kept.
func (d *Daemon) servePast(w http.ResponseWriter, _ *http.Request) {
	var buf bytes.Buffer
	if _, err := d.hub.Past(&buf); err != nil {
		refuseCapture(w, gone(err))
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	_, _ = w.Write(buf.Bytes()) // the client has gone: nobody is left to be told
}

// refuseCapture answers with an error in place of a stream.
func refuseCapture(w http.ResponseWriter, err error) {
	e := &control.Error{Status: http.StatusBadRequest, Message: err.Error()}
	if errors.As(answer(err), &e) && e.Status == http.StatusInternalServerError {
		e.Status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e) // the client has gone: nobody is left to be told
}
