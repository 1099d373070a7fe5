package fault

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// VerbsKind is the effect of a rule at the verbs boundary, between a program and the NIC of its host.
type VerbsKind string

// Kinds at the verbs boundary. Completion gives a successful completion an error status, and the queue
// pair goes to the error state, as after such a completion of hardware. Post makes the NIC refuse a
// send work request, so that the post returns an error. Late holds a completion back; later
// completions of the same queue wait behind it.
const (
	Completion VerbsKind = "completion"
	Post       VerbsKind = "post"
	Late       VerbsKind = "late"
)

// VerbsKinds lists the kinds in the order of help.
func VerbsKinds() []VerbsKind { return []VerbsKind{Completion, Post, Late} }

// VerbsRule is one fault at the verbs boundary of one host.
type VerbsRule struct {
	// ID names the rule; Verbs.Add chooses it: verbs-HOST-N.
	ID   string    `json:"id,omitempty"`
	Host string    `json:"host"`
	Kind VerbsKind `json:"kind"`
	// Status is the status of kind Completion, as ibv_wc_status names it without IBV_WC_.
	Status string `json:"status,omitempty"`
	// Errno is what a post of kind Post returns, like ENOMEM.
	Errno string `json:"errno,omitempty"`
	// Delay and Jitter are for kind Late: a completion waits for Delay plus a random time between
	// −Jitter and +Jitter.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// QPN is the queue pair; nil means every queue pair of the host.
	QPN *wire.QPN `json:"qpn,omitempty"`
	// Nth selects the n-th event, from 1, of each queue pair since the rule was installed: the n-th
	// completion, or the n-th send work request posted. 0 means every one.
	Nth int `json:"nth,omitempty"`
	// Probability, Count, For and Seed are as in Rule. Count counts the hits on all queue pairs.
	Probability float64       `json:"probability,omitempty"`
	Count       int           `json:"count,omitempty"`
	For         time.Duration `json:"for,omitempty"`
	Seed        uint64        `json:"seed,omitempty"`
}

// VerbsStatus is a rule with its hits.
type VerbsStatus struct {
	VerbsRule
	State State  `json:"state"`
	Hits  uint64 `json:"hits"`
	// Remaining is the time until the rule expires; 0 for a rule without For.
	Remaining time.Duration `json:"remaining,omitempty"`
}

// statusWords has the names of the statuses, by their values.
var statusWords = []string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR",
	"REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
	"REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

// StatusWords lists the statuses that a rule of kind Completion can have.
func StatusWords() []string { return slices.Clone(statusWords[1:]) }

// refusals has the errors of package verbs by the errno that they are for C programs.
var refusals = []struct {
	errno string
	err   error
}{
	{"ENOMEM", verbs.ErrNoSpace},
	{"EINVAL", verbs.ErrInvalid},
	{"EBUSY", verbs.ErrBusy},
	{"EACCES", verbs.ErrAccess},
	{"ETIMEDOUT", verbs.ErrTimeout},
	{"EOPNOTSUPP", verbs.ErrNotSupported},
	{"EHOSTUNREACH", verbs.ErrUnreachable},
}

// Errnos lists what a rule of kind Post can make a post return.
func Errnos() (list []string) {
	for _, r := range refusals {
		list = append(list, r.errno)
	}
	return list
}

// Validate returns a *RuleError for the first field of r that is wrong.
func (r *VerbsRule) Validate() error {
	amount := map[VerbsKind]bool{Completion: r.Status != "", Post: r.Errno != "", Late: r.Delay != 0 || r.Jitter != 0}
	has, known := amount[r.Kind]
	switch {
	case !known:
		return bad("kind", "%.40q is unknown; %suse one of %s", r.Kind, nearest.Meant(string(r.Kind), VerbsKinds(), OtherWords), join(VerbsKinds()))
	case r.Host == "":
		return bad("host", "missing")
	case !has:
		return bad("kind", "%s needs %s", r.Kind, map[VerbsKind]string{
			Completion: "a status, like RETRY_EXC_ERR", Post: "an errno, like ENOMEM", Late: "a delay, like 2ms",
		}[r.Kind])
	case r.Kind != Completion && r.Status != "" || r.Kind != Post && r.Errno != "" || r.Kind != Late && (r.Delay != 0 || r.Jitter != 0):
		return bad("kind", "%s takes no amount of another kind", r.Kind)
	case r.Kind == Completion && !slices.Contains(statusWords[1:], r.Status):
		return bad("status", "%.40q is unknown; %suse one of %s", r.Status, nearest.Meant(r.Status, statusWords[1:]), strings.Join(statusWords[1:], ", "))
	case r.Kind == Post && !slices.Contains(Errnos(), r.Errno):
		return bad("errno", "%.40q is unknown; %suse one of %s", r.Errno, nearest.Meant(r.Errno, Errnos()), strings.Join(Errnos(), ", "))
	}
	if err := validateDelay(r.Delay, r.Jitter); err != nil {
		return err
	}
	switch {
	case r.QPN != nil && (*r.QPN < 2 || *r.QPN > 0xffffff):
		return bad("qpn", "%#x is not from 2 to 0xffffff", uint32(*r.QPN))
	case r.Nth < 0:
		return bad("nth", "%d is negative; the first is 1, 0 means every one", r.Nth)
	}
	return validateLimits(r.Probability, r.Count, r.For)
}

// String returns the rule in the syntax of the command line, without its ID: "verbs cn0 completion
// RETRY_EXC_ERR --nth 5".
func (r VerbsRule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verbs %s %s %s", r.Host, r.Kind, cmp.Or(r.Status, r.Errno, r.Delay.String()))
	opt := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&b, " --"+format, args...)
		}
	}
	opt(r.Jitter != 0, "jitter %v", r.Jitter)
	if r.QPN != nil {
		opt(true, "qpn %#x", uint32(*r.QPN))
	}
	opt(r.Nth != 0, "nth %d", r.Nth)
	opt(r.Probability != 0, "probability %s", percent(r.Probability))
	opt(r.Count == 1, "once")
	opt(r.Count > 1, "next %d", r.Count)
	opt(r.For != 0, "for %v", r.For)
	opt(r.Seed != 0, "seed %d", r.Seed)
	return b.String()
}

// maxVerbsQPs bounds the queue pairs whose events one rule counts at a time. Events of further ones
// are not hit.
const maxVerbsQPs = 1 << 14

// Verbs has the rules of one host. It is used by one goroutine at a time.
//
// The random choices of a rule depend only on its seed and name, and on the place of the event: the
// number of its queue pair among those that the rule has seen, from 0, and the number of the event on
// that queue pair. They do not depend on the numbers of queue pairs, which differ from run to run.
type Verbs struct {
	seed    uint64
	host    string
	rules   []*verbsState
	counter int
}

type verbsState struct {
	VerbsRule
	stream uint64
	until  clock.Time
	hits   uint64
	seen   map[wire.QPN]*verbsQP
	order  uint64 // number of queue pairs seen so far
	refuse error  // of kind Post
	status verbs.Status
}

// verbsQP counts the events of one queue pair.
type verbsQP struct{ order, next uint64 }

// NewVerbs returns an empty plan for a host, with the seed of the rack.
func NewVerbs(seed uint64, host string) *Verbs { return &Verbs{seed: seed, host: host} }

// Add installs a rule and returns it with its ID. Errors are *RuleError or wrap ErrTooMany.
func (v *Verbs) Add(now clock.Time, r VerbsRule) (VerbsRule, error) {
	r.Host = v.host
	if err := r.Validate(); err != nil {
		return r, err
	}
	v.rules = slices.DeleteFunc(v.rules, func(s *verbsState) bool { return s.state(now) == Expired })
	if len(v.rules) >= maxRules {
		return r, fmt.Errorf("%w: there are %d; heal some", ErrTooMany, maxRules)
	}
	v.counter++
	r.ID = VerbsPrefix + v.host + "-" + strconv.Itoa(v.counter)
	s := &verbsState{VerbsRule: r, until: clock.Never, seen: make(map[wire.QPN]*verbsQP)}
	s.stream = hashString(hashString(mix(cmp.Or(r.Seed, v.seed)+golden), v.host), r.ID)
	if r.For > 0 {
		s.until = now.Add(r.For)
	}
	for _, e := range refusals {
		if e.errno == r.Errno {
			s.refuse = &verbs.OpError{Op: "post send", Err: e.err, Detail: "fault " + r.ID}
		}
	}
	s.status = verbs.Status(max(0, slices.Index(statusWords, r.Status)))
	v.rules = append(v.rules, s)
	return r, nil
}

// VerbsPrefix begins the IDs of rules at the verbs boundary.
const VerbsPrefix = "verbs-"

// Remove removes a rule. The error wraps ErrUnknownRule.
func (v *Verbs) Remove(id string) error {
	i := slices.IndexFunc(v.rules, func(s *verbsState) bool { return s.ID == id })
	if i < 0 {
		return fmt.Errorf("%w %q", ErrUnknownRule, id)
	}
	if v.rules = slices.Delete(v.rules, i, i+1); len(v.rules) == 0 {
		v.counter = 0 // so that the same rules get the same IDs, and make the same choices, again
	}
	return nil
}

// Clear removes all rules and returns how many were active.
func (v *Verbs) Clear(now clock.Time) (active int) {
	for _, s := range v.rules {
		if s.state(now) == Active {
			active++
		}
	}
	v.rules, v.counter = nil, 0
	return active
}

// List returns all rules in the order of their installation, including those that are spent.
func (v *Verbs) List(now clock.Time) []VerbsStatus {
	out := make([]VerbsStatus, len(v.rules))
	for i, s := range v.rules {
		out[i] = VerbsStatus{VerbsRule: s.VerbsRule, State: s.state(now), Hits: s.hits}
		if out[i].State == Active && s.until != clock.Never {
			out[i].Remaining = s.until.Sub(now)
		}
	}
	return out
}

// Posts reports whether a rule may refuse posts.
func (v *Verbs) Posts(now clock.Time) bool {
	return slices.ContainsFunc(v.rules, func(s *verbsState) bool { return s.Kind == Post && s.state(now) == Active })
}

// Forget forgets what the rules have counted for a queue pair that is reset or destroyed.
func (v *Verbs) Forget(qpn wire.QPN) {
	for _, s := range v.rules {
		delete(s.seen, qpn)
	}
}

// Post counts a send work request that is posted to a queue pair, and returns the error by which a
// rule refuses it. Index of the error is 0; the caller sets it.
func (v *Verbs) Post(now clock.Time, qpn wire.QPN) error {
	for _, s := range v.rules {
		if s.Kind != Post {
			continue
		}
		if hit, _ := s.event(now, qpn); hit {
			var refused verbs.OpError
			if op := (*verbs.OpError)(nil); errors.As(s.refuse, &op) {
				refused = *op
			}
			return &refused
		}
	}
	return nil
}

// Completion counts a completion of a queue pair. status is Success, or the error status that the
// completion gets instead of its own; later is how long it is held back; id names a rule that has hit,
// "" none.
func (v *Verbs) Completion(now clock.Time, qpn wire.QPN) (status verbs.Status, later time.Duration, id string) {
	for _, s := range v.rules {
		if s.Kind == Post {
			continue
		}
		hit, x := s.event(now, qpn)
		switch {
		case !hit:
			continue
		case s.Kind == Completion:
			status = s.status
		default:
			later += jittered(s.Delay, s.Jitter, x)
		}
		id = s.ID
	}
	return status, later, id
}

func (s *verbsState) state(now clock.Time) State {
	switch {
	case s.Count > 0 && s.hits >= uint64(s.Count):
		return Spent
	case now >= s.until:
		return Expired
	}
	return Active
}

// event counts an event of a queue pair. It reports whether the rule hits it, and returns a random
// number for the effect.
func (s *verbsState) event(now clock.Time, qpn wire.QPN) (hit bool, x uint64) {
	if s.QPN != nil && *s.QPN != qpn || s.state(now) != Active {
		return false, 0
	}
	q := s.seen[qpn]
	if q == nil {
		if len(s.seen) >= maxVerbsQPs {
			return false, 0
		}
		q = &verbsQP{order: s.order}
		s.order++
		s.seen[qpn] = q
	}
	stream := mix(s.stream + q.order*golden)
	pos := q.next * lanes
	q.next++
	if s.Nth > 0 && q.next != uint64(s.Nth) {
		return false, 0
	}
	if p := s.Probability; p > 0 && p < 1 && unit(draw(stream, pos+laneHit)) >= p {
		return false, 0
	}
	s.hits++
	return true, draw(stream, pos+laneAmount)
}
