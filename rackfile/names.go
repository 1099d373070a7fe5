package rackfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of names. A host's name is also the name of its port at the switch, and Linux limits names
// of interfaces to 15 bytes.
const (
	maxRackName = 24
	maxHostName = 15
	// maxRange bounds the number of names to which one pattern may expand.
	maxRange = 1024
	// maxDigits bounds the digits of the two numbers of a range, so that both fit into an int.
	maxDigits = 6
)

// reserved lists names that a host cannot have, because the rack's folders, commands or /etc/hosts
// use them for something else.
var reserved = []string{SwitchName, "all", "localhost", "lo", "timers", "watcher", "self", DaemonsName}

// CheckName returns an error if a rack cannot have this name.
func CheckName(name string) error {
	return checkName("rack", name, maxRackName)
}

// CheckHostName returns an error if a host cannot have this name.
func CheckHostName(name string) error {
	if err := checkName("host", name, maxHostName); err != nil {
		return err
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("host name %q is reserved; choose another", name)
	}
	return nil
}

func checkName(what, name string, limit int) error {
	switch {
	case name == "":
		return fmt.Errorf("%s name is empty; give it a name like cn0", what)
	case len(name) > limit:
		return fmt.Errorf("%s name %.40q has %d bytes; at most %d are allowed", what, name, len(name), limit)
	case name[0] < 'a' || name[0] > 'z':
		return fmt.Errorf("%s name %q must begin with a lower-case letter", what, name)
	case name[len(name)-1] == '-':
		return fmt.Errorf("%s name %q must not end with \"-\"", what, name)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("%s name %q has the character %q; only a-z, 0-9 and \"-\" are allowed", what, name, c)
		}
	}
	return nil
}

// Expand expands a pattern into names: cn[0-3] becomes cn0 cn1 cn2 cn3. With several ranges, as in
// r[0-1]-[00-15], the last one changes fastest. A pattern without a range stays as it is.
func Expand(pattern string) ([]string, error) {
	names := []string{""}
	rest := pattern
	for rest != "" {
		open := strings.IndexAny(rest, "[]")
		if open < 0 {
			return appendEach(names, []string{rest}), nil
		}
		end := strings.IndexByte(rest[open:], ']')
		if rest[open] == ']' || end < 0 {
			return nil, fmt.Errorf("%q has an unmatched bracket; write a range like cn[0-3]", pattern)
		}
		numbers, err := expandRange(rest[open+1 : open+end])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
		if len(names)*len(numbers) > maxRange {
			return nil, fmt.Errorf("%q makes more than %d names; split the rack", pattern, maxRange)
		}
		names = appendEach(appendEach(names, []string{rest[:open]}), numbers)
		rest = rest[open+end+1:]
	}
	return names, nil
}

func appendEach(heads, tails []string) []string {
	out := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, t := range tails {
			out = append(out, h+t)
		}
	}
	return out
}

// expandRange expands a range like 0-3 or 00-15. If the first number has leading zeros, all numbers
// get its number of digits.
func expandRange(s string) ([]string, error) {
	bad := fmt.Errorf("[%s] is no range; write it like [0-3] or [00-15]", s)
	lo, hi, ok := strings.Cut(s, "-")
	if !ok || lo == "" || hi == "" || strings.Trim(lo+hi, "0123456789") != "" || len(lo) > maxDigits || len(hi) > maxDigits {
		return nil, bad
	}
	first, err1 := strconv.Atoi(lo)
	last, err2 := strconv.Atoi(hi)
	width := 0
	if len(lo) > 1 && lo[0] == '0' {
		width = len(lo)
	}
	switch {
	case err1 != nil || err2 != nil:
		return nil, bad
	case first > last:
		return nil, fmt.Errorf("[%s] counts down; write the smaller number first", s)
	case last-first >= maxRange:
		return nil, fmt.Errorf("[%s] has more than %d numbers; split the rack", s, maxRange)
	case width > 0 && len(hi) != width:
		return nil, fmt.Errorf("[%s] has bounds of different width; write it like [00-15]", s)
	}
	out := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		out = append(out, fmt.Sprintf("%0*d", width, n))
	}
	return out, nil
}
