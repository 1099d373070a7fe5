package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Validate returns what is wrong with a resolved rule.
func (r *Rule) Validate() error {
	switch {
	case !r.Server.IsValid():
		return errors.New("it has no server; write server=NAME or server=ADDRESS")
	case r.Server.Is4In6() || r.Server.IsMulticast() || r.Server.IsUnspecified() || r.Server.Zone() != "":
		return fmt.Errorf("server %v is no address of a machine", r.Server)
	case len(r.Also) > MaxAlso:
		return fmt.Errorf("%d other addresses of the server; at most %d are allowed", len(r.Also), MaxAlso)
	case int(r.Action) >= len(definitions):
		return fmt.Errorf("action %d is unknown; use one of %v", r.Action, Actions())
	case int(r.Mode) >= len(modeNames):
		return fmt.Errorf("mode %d is unknown; use one of %v", r.Mode, modeNames)
	case (r.From != 0 || r.To != 0) && r.From >= r.To:
		return fmt.Errorf("range %#x-%#x is empty; write the lower address first, then the first address behind the range", r.From, r.To)
	case r.Shards < 0 || r.Shards > MaxShards:
		return fmt.Errorf("%d shards; use a number from 1 to %d", r.Shards, MaxShards)
	case r.MaxRdAtomic < 0 || r.MaxRdAtomic > MaxDepth:
		return fmt.Errorf("depth %d; use a number from 1 to %d", r.MaxRdAtomic, MaxDepth)
	case r.MTU != 0 && !slices.Contains(mtus, r.MTU):
		return fmt.Errorf("mtu %d is no path MTU; use one of %v", r.MTU, mtus)
	case len(r.Keys) > MaxKeys || len(joinKeys(r.Keys)) > MaxText/2:
		return fmt.Errorf("%d keys; at most %d can be named", len(r.Keys), MaxKeys)
	case int(r.Steer) >= len(steerNames):
		return fmt.Errorf("steer %d is unknown; use one of %v", r.Steer, steerNames)
	case r.Slowed() != SlowAll && r.Mode != Hardened:
		return errors.New("slow is allowed only in mode hardened")
	case int(r.Misses) >= len(answererNames):
		return fmt.Errorf("misses %d is unknown; use one of %v", r.Misses, answererNames)
	case r.MissTime < 0 || r.MissTime > MaxMissTime || r.MissTime != 0 && r.Misses != AnswerWait:
		return fmt.Errorf("a CMP_SWAP waits for %v; want at most %v, and misses=wait", r.MissTime, MaxMissTime)
	case r.Misses != AnswerServer && (r.Action != Atomics || r.Mode != Hardened):
		return errors.New("misses is allowed only with action atomics in mode hardened")
	case r.Hot < 0 || r.Hot > MaxHot || r.Hot > 0 && len(r.Keys) > 0:
		return fmt.Errorf("%d hot keys; use a number from 1 to %d, and do not list keys as well", r.Hot, MaxHot)
	case r.Action != Steer && (r.Steer != SteerBoth || len(r.Keys) != 0 || r.Hot != 0):
		return errors.New("steer and keys are allowed only with action steer")
	case r.Action == Steer && r.Mode == Published && r.Hot != 0:
		return errors.New("keys=hot:N is allowed only in mode hardened; list keys, or leave out keys")
	case r.Registers < 0 || r.Registers > MaxRegisters:
		return fmt.Errorf("%d registers; use a number from 1 to %d", r.Registers, MaxRegisters)
	case r.Registers != 0 && (r.Action != Steer || r.Mode != Published):
		return errors.New("registers is allowed only with action steer in mode published; in mode hardened each key has its own tail")
	case r.Action == Atomics && r.From%8 != 0 || r.Action == Atomics && r.To%8 != 0:
		return fmt.Errorf("range %#x-%#x cuts a word in two; its bounds must be multiples of 8 with action atomics", r.From, r.To)
	}
	if err := checkID(r.ID); err != nil {
		return err
	}
	if err := checkService(r.Service); err != nil {
		return err
	}
	return r.Action.Definition().validate(r)
}

var mtus = []int{256, 512, 1024, 2048, 4096}

func checkID(id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("id %.40q has %d bytes; use 1 to %d", id, len(id), MaxID)
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("id %q has the character %q; only a-z, 0-9 and \"-\" are allowed", id, c)
		}
	}
	return nil
}

func checkService(s string) error {
	if s == "" {
		return nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		if n < 1 || n > 65535 || s[0] == '0' {
			return fmt.Errorf("service %s is no port; use a number from 1 to 65535, or a name", s)
		}
		return nil
	}
	if len(s) > MaxService {
		return fmt.Errorf("service %.40q has %d bytes; use at most %d", s, len(s), MaxService)
	}
	for _, c := range s {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '=' {
			return fmt.Errorf("service %q has the character %q; use a name like %s", s, c, DefaultService)
		}
	}
	return nil
}

// admits returns why the rule next cannot come behind rule r in a set; nil means that it can.
func (r *Rule) admits(next *Rule) error {
	if r.ID == next.ID {
		return errors.New("its id is taken by a rule before it; ids must differ")
	}
	a, b := r.Action.Definition(), next.Action.Definition()
	shared := r.Of(next.Server) || slices.ContainsFunc(next.Also, func(a netip.Addr) bool { return r.Of(a) })
	switch {
	case !shared:
		return nil
	case r.Server != next.Server || !sameAddrs(r.Also, next.Also):
		return fmt.Errorf("rule %s calls the same server %v; write the server in the same way in both", r.ID, r.Server)
	case a.Observes != b.Observes || a.Queues != b.Queues || a.Queues && r.Action != next.Action:
		return nil
	case r.hides(next):
		return fmt.Errorf("rule %s before it takes all of its requests; put it first, or give them different ranges", r.ID)
	case a.Service == "" || b.Service == "":
		return nil
	case a.Service != b.Service:
		return fmt.Errorf("rule %s moves or steers requests of the same server, and this rule does the other; a server is served in one way only", r.ID)
	case r.Mode != next.Mode:
		return fmt.Errorf("mode %v, but rule %s of the same server has mode %v; a server is %s in one mode", next.Mode, r.ID, r.Mode, a.Service)
	case !next.Moves():
		return nil
	case r.NumShards() != next.NumShards() || r.Service != next.Service || r.Depth() != next.Depth() || r.MTU != next.MTU || r.Slowed() != next.Slowed():
		return fmt.Errorf("rule %s uses the same shared connections; shards, service, depth, mtu and slow must be the same in both", r.ID)
	}
	return nil
}

// hides reports whether r matches every request that s matches. Then s, which follows r, would
// never apply.
func (r *Rule) hides(s *Rule) bool {
	if r.RKey != 0 && r.RKey != s.RKey {
		return false
	}
	whole := r.From == 0 && r.To == 0
	return whole || (s.From != 0 || s.To != 0) && r.From <= s.From && r.To >= s.To
}

func sameAddrs(a, b []netip.Addr) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x netip.Addr) bool { return !slices.Contains(b, x) })
}
