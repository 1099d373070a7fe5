package units

import "strings"

// MaxName is the longest name in bytes; see IsName.
const MaxName = 32

// IsName reports whether a text is a name of rules, hosts in them, and what modules register (kinds of faults, congestion controls,
// policies, hashes): 1 to MaxName small letters, digits and dashes.
func IsName(s string) bool {
	return s != "" && len(s) <= MaxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
