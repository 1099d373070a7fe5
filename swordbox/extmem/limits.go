package extmem

import (
	"fmt"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/units"
)

// Keys of rules that limit the requests of the switch to the memory of servers. Actions that have them
// name LimitKeys in Definition.Shares.
const (
	// KeyCap bounds the rate of a connection, KeyDSCP sets the code point of its packets.
	KeyCap  = "cap"
	KeyDSCP = "dscp"
)

const maxDSCP = 63

// LimitKeys lists the keys.
var LimitKeys = offerLimits()

func offerLimits() []string {
	rules.Offer(
		rules.Option(KeyCap, "2Gbit", "with an action that uses the memory of servers: how many bits a second of requests, with retransmissions, the switch sends on each of its connections to them at most, "+
			"1Mbit to 1Tbit; frames count from Ethernet header to ICRC; only in mode hardened; default: no bound", checkCap),
		rules.Option(KeyDSCP, "46", fmt.Sprintf("with an action that uses the memory of servers: DSCP of the switch's requests to them, 0 to %d, by which switches choose the priority (`switch.queues`); only in mode hardened; "+
			"default: 0", maxDSCP), Between(0, maxDSCP)),
	)
	return []string{KeyCap, KeyDSCP}
}

func checkCap(s string) error {
	n, err := units.ParseRate(s)
	if err == nil && (n < requester.MinRate || n > requester.MaxRate) {
		return fmt.Errorf("rate %.40s: use %s to %s", s, fault.FormatRate(requester.MinRate), fault.FormatRate(requester.MaxRate))
	}
	return err
}

// CheckLimits returns why a rule cannot have limits.
func CheckLimits(r *rules.Rule) error {
	for _, key := range LimitKeys {
		if r.Options[key] != "" && r.Mode != rules.Hardened {
			return fmt.Errorf("%s: requests of a published rule have no limits; leave %[1]s or mode out", key)
		}
	}
	return nil
}

// LimitsOf returns the limits of a valid rule. burst is requester.Limits.Burst.
func LimitsOf(r *rules.Rule, burst int) requester.Limits {
	rate, _ := units.ParseRate(r.Options[KeyCap]) // "" is 0
	return requester.Limits{Rate: rate, Burst: burst, DSCP: uint8(Number(r.Options[KeyDSCP], 0))}
}

// FrameBurst is the burst for handlers that write frames: more than all parts of the largest super-frame
// with their headers.
const FrameBurst = 128 << 10
