package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Limits for the fields of a rule.
const (
	// MaxDelay is the longest delay that a rule may have.
	MaxDelay = time.Minute
	// MinRate is the lowest rate in bits per second. At this rate, a packet with the largest path MTU
	// takes more than four seconds.
	MinRate = 8_000
	// MaxRate is the highest rate in bits per second, far above the rate of a veth.
	MaxRate = 1_000_000_000_000
)

// idAlphabet has the characters of which a rule's ID may consist, idFirst those with which it may
// begin. The ID is a path element of the control API, so it must not be "..".
const (
	idFirst    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	idAlphabet = idFirst + ".-_"
)

// RuleError says which field of a rule is wrong and what is allowed. Field is the JSON name.
type RuleError struct{ Field, Reason string }

func (e *RuleError) Error() string { return "fault rule: " + e.Field + ": " + e.Reason }

func bad(field, format string, args ...any) error {
	return &RuleError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// kinds has the kinds of faults in the order of listings, the registered ones last.
var kinds = []Kind{Loss, Duplicate, Delay, Reorder, Corrupt, Rate, Blackhole, Mark, Storm, Tear}

func Kinds() []Kind { return slices.Clone(kinds) }

// Validate returns a *RuleError for the first field of r that is wrong. It does not know which
// links exist.
func (r *Rule) Validate() error {
	switch {
	case !slices.Contains(kinds, r.Kind):
		return bad("kind", "%.40q is unknown; %suse one of %s", r.Kind, nearest.Meant(string(r.Kind), kinds, OtherWords), join(kinds))
	case len(r.ID) > maxIDLen || strings.Trim(r.ID, idAlphabet) != "" || r.ID != "" && !strings.ContainsAny(r.ID[:1], idFirst):
		return bad("id", "%q is not 1 to %d letters, digits, dots, dashes and underscores, the first a letter or digit", r.ID, maxIDLen)
	case r.Link == "":
		return bad("link", "missing; name the host whose link (or, for tear, whose memory) it is")
	case r.Dir != "" && r.Dir != Up && r.Dir != Down && r.Dir != Both:
		return bad("dir", "%.40q is unknown; %suse one of up, down, both", r.Dir, nearest.Meant(string(r.Dir), []Dir{Up, Down, Both}, OtherWords))
	}
	if err := validateLimits(r.Probability, r.Count, r.For); err != nil {
		return err
	}
	if err := r.validateAmounts(); err != nil {
		return err
	}
	if r.Kind == Tear && (r.Dir == Up || r.Dir == Down || !r.Match.empty() || r.Count != 0) {
		return bad("kind", "tear concerns memory copies of a host: it takes no direction, match or count")
	}
	return r.Match.validate()
}

// validateAmounts checks that a rule has the amounts that its kind needs, and none that the kind
// would ignore.
func (r *Rule) validateAmounts() error {
	_, own := effectOf(r.Kind)
	timed := r.Kind == Delay || r.Kind == Reorder || r.Kind == Tear || own
	if err := validateDelay(r.Delay, r.Jitter); err != nil {
		return err
	}
	switch {
	case r.Delay != 0 && !timed:
		return bad("delay", "kind %s takes none; only delay, reorder and tear do", r.Kind)
	case r.Jitter != 0 && r.Kind != Delay:
		return bad("jitter", "kind %s takes none; only delay does", r.Kind)
	case r.Kind == Delay && r.Delay == 0 && r.Jitter == 0:
		return bad("delay", "missing, for example 1ms")
	case r.BitsPerSecond != 0 && r.Kind != Rate:
		return bad("bitsPerSecond", "kind %s takes none; only rate does", r.Kind)
	case r.Kind == Rate && (r.BitsPerSecond < MinRate || r.BitsPerSecond > MaxRate):
		return bad("bitsPerSecond", "%d is not between 8kbit and 1Tbit", r.BitsPerSecond)
	case r.Kind == Rate && r.Probability != 0 && r.Probability != 1:
		return bad("probability", "kind rate takes none: it limits all selected frames")
	case r.Priority != 0 && r.Kind != Storm:
		return bad("priority", "kind %s takes none; only pause does", r.Kind)
	case r.Priority < 0 || r.Priority > wire.Priorities-1:
		return bad("priority", "%d is not between 0 and 7", r.Priority)
	case r.Kind == Storm && (r.Probability != 0 && r.Probability != 1 || !r.Match.empty() || r.Count != 0):
		return bad("kind", "pause hits no frames: it takes a priority and a time, and no probability, match or count")
	case r.Kind == Blackhole && (r.Probability != 0 && r.Probability != 1 || !r.Match.empty() || r.Count != 0):
		return bad("kind", "a blackhole drops all frames; use loss with a probability, a match or a count")
	}
	return nil
}

// validateLimits checks how often, and for how long, a rule hits.
func validateLimits(probability float64, count int, life time.Duration) error {
	switch {
	case !(probability >= 0 && probability <= 1): // also refuses NaN
		return bad("probability", "%v is not between 0%% and 100%%", probability)
	case count < 0:
		return bad("count", "%d is negative; 0 means no limit", count)
	case life < 0:
		return bad("for", "%v is negative; 0 means until healed", life)
	}
	return nil
}

// validateDelay checks by how much a rule delays.
func validateDelay(delay, jitter time.Duration) error {
	switch {
	case delay < 0 || delay > MaxDelay:
		return bad("delay", "%v is not between 0 and %v", delay, MaxDelay)
	case jitter < 0 || jitter > MaxDelay:
		return bad("jitter", "%v is not between 0 and %v", jitter, MaxDelay)
	}
	return nil
}

func (m *Match) validate() error {
	switch {
	case oneRMAClasses[m.Class] != nil && (len(m.Opcodes) != 0 || m.QPN != nil || m.PSN != nil || m.PSNOffset != nil || m.Transmission != 0 || m.SamePacket):
		return bad("match.class", "%s selects 1RMA messages, which have no opcode, queue pair, PSN or retransmission: leave these out", m.Class)
	case m.Class != "" && classes[m.Class] == nil && oneRMAClasses[m.Class] == nil:
		return bad("match.class", "%.40q is unknown; %suse one of %s", m.Class, nearest.Meant(m.Class, Classes(), OtherWords), strings.Join(Classes(), ", "))
	case m.QPN != nil && *m.QPN > 0xffffff:
		return bad("match.qpn", "%#x has more than 24 bits", *m.QPN)
	case m.PSN != nil && *m.PSN > 0xffffff:
		return bad("match.psn", "%d has more than 24 bits", *m.PSN)
	case m.PSN != nil && m.PSNOffset != nil:
		return bad("match.psnOffset", "contradicts match.psn; give one of them")
	case m.PSNOffset != nil && (*m.PSNOffset < 0 || *m.PSNOffset >= 1<<23):
		return bad("match.psnOffset", "%d is not between 0 and 8388607", *m.PSNOffset)
	case m.Transmission < 0:
		return bad("match.transmission", "%d is negative; the first transmission is 1, 0 means any", m.Transmission)
	}
	if classes[m.Class] != nil {
		for _, op := range m.Opcodes {
			if class := classes[m.Class]; m.Class != "ack" && m.Class != "nak" && m.Class != "rnr" && !class(&view{packetID: packetID{op: op}}) {
				return bad("match.opcodes", "%v is never of class %s", op, m.Class)
			}
		}
	}
	return nil
}

func join[T ~string](list []T) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}
