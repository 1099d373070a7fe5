package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// maxRefusalsKept is how many refusals Server.Refusals lists: the latest ones.
const maxRefusalsKept = 16

// Kinds of refusals that are no quota of an application: the number of applications, and refusals
// of a program's command for another reason than a quota.
const (
	kindProgram = kinds + iota
	kindCommand
	refusalKinds
)

// RefusalStatus describes refusals of one kind that one application has got. A program over
// libibverbs only sees an error number, so the reason is here.
type RefusalStatus struct {
	PID  int32  `json:"pid"` // process ID in the daemon's PID namespace
	UID  uint32 `json:"uid"`
	Name string `json:"name,omitempty"`
	// Quota is the name of the quota; empty if the refusal had another reason.
	Quota string `json:"quota,omitempty"`
	// Reason is that of the latest refusal, Last its time, and Times the number of refusals.
	Reason string    `json:"reason"`
	Last   time.Time `json:"last"`
	Times  uint64    `json:"times"`

	client uint64 // the number of the application; 0: it was not attached
	kind   kind
}

// RefusalCounters count what all applications were refused.
type RefusalCounters struct {
	Quota    uint64 `name:"program_quota_refusals" help:"objects that programs did not get because of a quota; the log and status say which"`
	Commands uint64 `name:"program_command_refusals" help:"commands of programs that were refused for another reason; the log and status say which"`
}

// refusals counts refusals, remembers the latest ones and logs them. It is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	counts [refusalKinds]uint64
	latest []RefusalStatus // the latest refusal is the last
}

func (r *refusals) of(k kind) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[k]
}

// add counts a refusal. The log gets the first refusal of each kind of an application, then the
// tenth, the hundredth and so on, because some programs try again and again.
func (r *refusals) add(k kind, who RefusalStatus, why error) {
	who.kind, who.Reason, who.Last, who.Times = k, why.Error(), time.Now(), 1
	if k < kinds {
		who.Quota = quotas[k].name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[k]++
	i := slices.IndexFunc(r.latest, func(o RefusalStatus) bool { return o.client == who.client && o.kind == k && o.PID == who.PID })
	if i >= 0 {
		who.Times += r.latest[i].Times
		r.latest = slices.Delete(r.latest, i, i+1)
	}
	r.latest = append(r.latest, who)
	r.latest = r.latest[max(0, len(r.latest)-maxRefusalsKept):]
	if powerOfTen(who.Times) {
		r.log.Warn("verbs: refused", "pid", who.PID, "uid", who.UID, "name", who.Name, "times", who.Times, "reason", why)
	}
}

// powerOfTen reports whether n is 1, 10, 100 and so on.
func powerOfTen(n uint64) bool {
	for n > 1 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// Refusals lists the latest refusals of applications, oldest first. It also has those of
// applications that have ended.
func (s *Server) Refusals() []RefusalStatus {
	s.refusals.mu.Lock()
	defer s.refusals.mu.Unlock()
	return slices.Clone(s.refusals.latest)
}

// RefusalCounters returns the counters of refusals.
func (s *Server) RefusalCounters() (c RefusalCounters) {
	s.refusals.mu.Lock()
	defer s.refusals.mu.Unlock()
	for k, n := range s.refusals.counts {
		if kind(k) == kindCommand {
			c.Commands += n
		} else {
			c.Quota += n
		}
	}
	return c
}

// refused records that the client was refused something.
func (c *client) refused(k kind, why error) {
	c.mu.Lock()
	name := c.name
	c.mu.Unlock()
	c.s.refusals.add(k, RefusalStatus{PID: c.cred.Pid, UID: c.cred.Uid, Name: name, client: c.id}, why)
}

// quotaError is a refusal because of a quota. objects.take has counted it.
type quotaError struct{ error }

func (e quotaError) Unwrap() error { return e.error }

// makes has the names of the commands whose refusals are recorded: those that make, change or end an
// object. Refused changes of queue pairs are noted by the queue pair (see (*programQueues).modifyQP).
var makes = map[uverbs.Op]string{
	uverbs.AllocPD: "alloc PD", uverbs.RegMR: "reg MR", uverbs.AllocMW: "alloc MW", uverbs.CreateAH: "create AH",
	uverbs.CreateCompChannel: "create completion channel", uverbs.CreateCQ: "create CQ", uverbs.ResizeCQ: "resize CQ",
	uverbs.CreateQP: "create QP", uverbs.CreateSRQ: "create SRQ", uverbs.AttachMulticast: "attach multicast",
	uverbs.DetachMulticast: "detach multicast", uverbs.ModifySRQ: "modify SRQ", uverbs.ModifyCQ: "modify CQ", uverbs.DeregMR: "dereg MR",
	uverbs.ReregMR: "rereg MR", uverbs.AllocDM: "alloc DM", uverbs.FreeDM: "free DM", uverbs.RegDM: "reg DM",
	uverbs.DeallocPD: "dealloc PD", uverbs.DeallocMW: "dealloc MW", uverbs.DestroyCQ: "destroy CQ", uverbs.DestroyQP: "destroy QP",
	uverbs.OpenXRCD: "open XRC domain", uverbs.CloseXRCD: "close XRC domain", uverbs.CreateXSRQ: "create SRQ", uverbs.OpenQP: "open QP",
	uverbs.DestroySRQ: "destroy SRQ", uverbs.DestroyAH: "destroy AH", uverbs.UseRing: "use ring", uverbs.Doorbell: "ring doorbell",
}

// makesOfManager has the names of the commands of librdmacm that make an object.
var makesOfManager = map[ucma.Op]string{
	ucma.CreateID: "create identifier", ucma.OpenChannel: "create event channel", ucma.Listen: "listen", ucma.JoinIPMulticast: "join multicast",
	ucma.JoinMulticast: "join multicast",
}

// notMade records that a command named op has not made an object; it does nothing if op is "", if a
// quota was the reason, which is recorded already, and if such objects do not exist here: programs
// ask for them to find out.
func (c *client) notMade(op string, why error) {
	if op == "" || errors.As(why, new(quotaError)) || errnoOf(why) == unix.EOPNOTSUPP {
		return
	}
	if !strings.Contains(why.Error(), op) {
		why = fmt.Errorf("%s: %w", op, why)
	}
	c.refused(kindCommand, why)
}
