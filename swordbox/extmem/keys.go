package extmem

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/units"
)

// MaxServers is how many servers a rule can name in one key.
const MaxServers = 8

// Align is the unit of offsets in a server's memory, in bytes: offsets are multiples of it. It is
// the size of a word.
const Align = 8

// ServersKey returns the field for a rule's key whose value names up to MaxServers servers,
// separated by commas. The field keeps each address in its canonical text, so that equal addresses
// are equal words; otherwise one server in two spellings would count as two.
func ServersKey(key, example, doc string) rules.Field {
	f := rules.Option(key, example, doc, checkServers)
	set := f.Set
	f.Set = func(r *rules.Rule, text string) error {
		words := strings.Split(text, ",")
		for i, w := range words {
			if a, err := netip.ParseAddr(w); err == nil {
				words[i] = a.Unmap().String()
			}
		}
		return set(r, strings.Join(words, ","))
	}
	return f
}

func checkServers(s string) error {
	list := strings.Split(s, ",")
	if len(list) > MaxServers {
		return fmt.Errorf("%d servers; at most %d are allowed", len(list), MaxServers)
	}
	for i, w := range list {
		a, err := netip.ParseAddr(w)
		if err == nil && (a.Zone() != "" || a.IsUnspecified() || a.IsMulticast()) {
			return fmt.Errorf("%.60q is no address of a machine", w)
		}
		if err != nil && !units.IsName(w) {
			return fmt.Errorf("%.60q is neither a host's name nor an address", w)
		}
		if slices.Contains(list[:i], w) {
			return fmt.Errorf("%.60q is there twice", w)
		}
	}
	return nil
}

// Servers returns the addresses in the value of a ServersKey. It leaves out a server whose name is
// not resolved yet.
func Servers(value string) (list []netip.Addr) {
	for _, w := range strings.Split(value, ",") {
		if a, err := netip.ParseAddr(w); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// CheckOffset checks the text of an offset in a server's memory, which Offset reads.
func CheckOffset(s string) error {
	if n, err := strconv.ParseUint(s, 0, 48); err != nil || n%Align != 0 {
		return fmt.Errorf("%.40q is no offset; use a multiple of %d", s, Align)
	}
	return nil
}

// Offset returns the value of a valid offset, in bytes; "" is 0.
func Offset(s string) uint64 {
	n, _ := strconv.ParseUint(s, 0, 48) // "" is 0
	return n
}

// Between returns a check that a text is a number from low to high.
func Between(low, high int) func(string) error {
	return func(s string) error {
		if n, err := strconv.Atoi(s); err != nil || n < low || n > high {
			return fmt.Errorf("%.40q is no number from %d to %d", s, low, high)
		}
		return nil
	}
}

// Number returns the value of a number that Between accepts; for "" it returns fallback.
func Number(s string, fallback int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return fallback
}

// OneOf returns a check that a text is in list.
func OneOf(list ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(list, s) {
			return fmt.Errorf("%.40q is unknown; %suse one of %s", s, nearest.Meant(s, list), strings.Join(list, ", "))
		}
		return nil
	}
}
