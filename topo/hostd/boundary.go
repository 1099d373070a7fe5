package hostd

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// boundary has the injected faults between programs and the NIC of a host. Exclusive use of the engine
// guards the plan. The plan survives a crash of the NIC, but not of the host.
type boundary struct {
	h    *Host
	plan *fault.Verbs
	mu   sync.Mutex // held while the plan changes and programs are told of it
}

// VerbsHealed answers DELETE PathVerbsFaults.
type VerbsHealed struct {
	// Rules is how many active rules were ended.
	Rules int `json:"rules"`
}

func (b *boundary) routes(m *control.Mux) {
	control.Handle(m, "GET "+PathVerbsFaults, func(*http.Request, none) (list []fault.VerbsStatus, err error) {
		b.with(func(now clock.Time) { list = b.plan.List(now) })
		return list, nil
	})
	control.Handle(m, "POST "+PathVerbsFaults, func(_ *http.Request, r fault.VerbsRule) (fault.VerbsRule, error) { return b.add(r) })
	control.Handle(m, "DELETE "+PathVerbsFaults, func(*http.Request, none) (out VerbsHealed, err error) {
		b.with(func(now clock.Time) { out.Rules = b.plan.Clear(now) })
		return out, nil
	})
	control.Handle(m, "DELETE "+PathVerbsFaults+"/{id}", func(r *http.Request, _ none) (none, error) {
		var err error
		b.with(func(clock.Time) { err = b.plan.Remove(r.PathValue("id")) })
		if err != nil {
			err = control.Errorf(http.StatusNotFound, "%v", err)
		}
		return none{}, err
	})
}

// add installs a rule. When its time is over, programs need no longer ask before they post.
func (b *boundary) add(r fault.VerbsRule) (out fault.VerbsRule, err error) {
	b.with(func(now clock.Time) { out, err = b.plan.Add(now, r) })
	var wrong *fault.RuleError
	switch {
	case errors.As(err, &wrong):
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	case err != nil:
		return out, control.Errorf(http.StatusConflict, "%v", err)
	}
	if out.For > 0 {
		time.AfterFunc(out.For*time.Duration(b.h.rack.Load().Factor()), func() { b.with(func(clock.Time) {}) })
	}
	b.h.log.Info("fault at the verbs boundary", "rule", out.String(), "id", out.ID)
	return out, nil
}

// with calls f with exclusive use of the NIC, gives the NIC the plan, and then tells programs whether they must ask before
// they post.
func (b *boundary) with(f func(now clock.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	posts := false
	b.h.dev.Step(func(now clock.Time, e *engine.Engine) {
		f(now)
		if len(b.plan.List(now)) > 0 {
			e.Hooks.Faults = b.plan // from the first rule on
		}
		posts = b.plan.Posts(now)
	})
	b.h.ipc.SetAsks(posts)
}
