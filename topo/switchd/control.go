package switchd

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// none is the type of a request or an answer without a body.
type none struct{}

// Mux serves the daemon:
//
//	GET    /status               ports, faults and captures
//	GET    /counters             counters of each port and of the switch
//	GET    /flows                counters of each RoCEv2 flow
//	GET    /queues               egress queues of ports with a rate, by priority
//	GET    /faults               fault rules with their hits
//	POST   /faults               installs a fault.Rule, returns it with its id
//	PUT    /faults               installs a fault.Rule in the place of others
//	DELETE /faults/{id}          removes a fault rule
//	DELETE /faults?link=cn0      removes the fault rules of a link; without link=, those of all
//	POST   /partition            separates groups of hosts
//	DELETE /partition            ends the partition
//	GET    /capture?link=cn0&dir=up&snaplen=128&for=10s   streams pcapng; without for=,
//	                              until the client disconnects; with commented=1, only packets
//	                              that a fault or the program touched
//	POST   /capture/{name}/end   ends the capture that was begun with name=
//	POST   /ports                adds the port of a guest
//	DELETE /ports/{host}         removes the port of a guest
//	POST   /rack                 reads the rack's description again, and adds and removes ports of hosts
//	POST   /trunk                cuts a trunk to another machine at this end, or ends that: a TrunkSwitch
//	GET    /past                 the last packets as pcapng, if the switch keeps them
//	GET    /decisions            the newest packets that the program has dropped or refused: Decisions
//	POST   /trace                records when packets pass: a pathtrace.Request
//	DELETE /trace                ends the recording, returns a pathtrace.Trace
//	GET    /profile?for=5s       records a CPU profile: control.HandleProfile
//	GET    /program              the running program
//	PUT    /program              replaces the program and its rules
//	GET    /budget               the resources of a switching chip that the program would need
//	GET    /rules                the rules in force
//	POST   /rules                adds a rule, returns it with its id
//	PUT    /rules                replaces all rules
//	DELETE /rules/{id}           removes a rule
//	GET    /tables               tables and how full they are
//	DELETE /tables/{name}        clears a table
//	GET    /macs                 learnt MAC addresses
//	GET    /groups               multicast groups with the ports of their members
//
// and the requests of programs: apps.Requests.
func (d *Daemon) Mux() *control.Mux {
	m := new(control.Mux)
	control.Handle(m, "GET /status", func(*http.Request, none) (Status, error) { return d.Status() })
	control.Handle(m, "GET /counters", func(*http.Request, none) (Counters, error) { return d.Counters() })
	control.Handle(m, "GET /flows", func(*http.Request, none) ([]pipeline.Flow, error) { return d.Flows() })
	control.Handle(m, "GET /faults", func(*http.Request, none) ([]fault.Status, error) { return d.faults.Faults() })
	control.Handle(m, "POST /faults", func(_ *http.Request, r fault.Rule) (fault.Rule, error) {
		r, err := d.faults.Inject(r)
		return r, answer(err)
	})
	control.Handle(m, "PUT /faults", func(_ *http.Request, r fault.Rule) (fault.Rule, error) {
		r, err := d.faults.Replace(r)
		return r, answer(err)
	})
	control.Handle(m, "DELETE /faults/{id}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(d.faults.RemoveFault(r.PathValue("id")))
	})
	control.Handle(m, "DELETE /faults", func(r *http.Request, _ none) (Healed, error) {
		n, err := d.faults.Heal(r.URL.Query().Get("link"))
		return Healed{n}, answer(err)
	})
	control.Handle(m, "POST /partition", func(_ *http.Request, p Partition) (none, error) {
		return none{}, answer(d.faults.SetPartition(p.Groups))
	})
	control.Handle(m, "DELETE /partition", func(*http.Request, none) (none, error) {
		return none{}, answer(d.faults.SetPartition(nil))
	})
	m.HandleFunc("GET /capture", d.captures.serveCapture)
	control.Handle(m, "POST /capture/{name}/end", d.captures.end)
	m.HandleFunc("GET /past", d.captures.servePast)
	d.handleTrace(m)
	d.handleQueues(m)
	d.handleTrunks(m)
	control.HandleProfile(m, cmp.Or(d.rackSwitch(), rackfile.SwitchName))
	d.guests.handleGuests(m)
	d.hosts.handle(m)
	d.programs.handle(m)
	d.programs.handleTables(m)
	d.programs.handleDecisions(m)
	return m
}

// answer gives an error the HTTP status for its kind.
func answer(err error) error {
	var rule *fault.RuleError
	status := 0
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rule), errors.Is(err, fault.ErrNotOnLink), errors.Is(err, errPartition), errors.Is(err, handler.ErrRefused):
		status = http.StatusBadRequest
	case errors.Is(err, handler.ErrNoRules), errors.Is(err, errTaken), errors.Is(err, errBound), errors.Is(err, fault.ErrDuplicateID):
		status = http.StatusConflict
	case errors.Is(err, fault.ErrUnknownLink), errors.Is(err, fault.ErrUnknownRule), errors.Is(err, tap.ErrUnknownLink), errors.Is(err, handler.ErrGone):
		status = http.StatusNotFound
	case errors.Is(err, fault.ErrTooMany), errors.Is(err, tap.ErrTooMany), errors.Is(err, errBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, ErrStopped):
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusInternalServerError
	}
	return control.Errorf(status, "%v", err)
}
