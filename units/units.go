package units

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unit is a suffix and the factor for which it stands.
type unit struct {
	name   string
	factor float64
}

// Units of sizes and rates. parseUnit tries them in this order, so a unit that is the end of
// another one comes after it: B after KiB. The short units are those of other tools: sizes of 64K as in
// iperf and perftest, which are 64KiB there, too; rates of 1gbit as in tc, and of 10G as in iperf.
var (
	sizeUnits = []unit{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"B", 1},
		{"K", 1 << 10},
		{"M", 1 << 20},
		{"G", 1 << 30},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
	}
	rateUnits = []unit{
		{"Kbit", 1e3},
		{"Mbit", 1e6},
		{"Gbit", 1e9},
		{"Tbit", 1e12},
		{"kbit", 1e3},
		{"mbit", 1e6},
		{"gbit", 1e9},
		{"tbit", 1e12},
		{"bit", 1},
		{"K", 1e3},
		{"M", 1e6},
		{"G", 1e9},
		{"T", 1e12},
		{"k", 1e3},
		{"m", 1e6},
		{"g", 1e9},
	}
)

// Units that mean different things to different tools, and the ones to write instead. Their number
// of bytes or bits is not guessed.
var (
	sizeDoubts = []doubt{{"kb", "KiB"}, {"mb", "MiB"}, {"gb", "GiB"}, {"kib", "KiB"}, {"mib", "MiB"}, {"gib", "GiB"}, {"ki", "KiB"}, {"mi", "MiB"}, {"gi", "GiB"}}
	rateDoubts = []doubt{{"kbps", "Kbit"}, {"mbps", "Mbit"}, {"gbps", "Gbit"}, {"kbit/s", "Kbit"}, {"mbit/s", "Mbit"}, {"gbit/s", "Gbit"}, {"kb/s", "Kbit"}, {"mb/s", "Mbit"}, {"gb/s", "Gbit"}}
	timeDoubts = []doubt{{"msecs", "ms"}, {"msec", "ms"}, {"usecs", "us"}, {"usec", "us"}, {"nsec", "ns"}, {"secs", "s"}, {"sec", "s"}, {"min", "m"}}
)

// doubt is a unit, in lower-case letters, that is not read, and the one that is meant or likely.
type doubt struct{ unit, write string }

// bytesPerSecond are units of bytes a second, with an upper-case B: eight times as many bits are meant.
var bytesPerSecond = []doubt{{"KBps", "Kbit"}, {"MBps", "Mbit"}, {"GBps", "Gbit"}, {"KB/s", "Kbit"}, {"MB/s", "Mbit"}, {"GB/s", "Gbit"}}

// meantBits returns ": write RATE" if s is a number of bytes a second, and "" otherwise.
func meantBits(s string) string {
	for _, d := range bytesPerSecond {
		number, ok := strings.CutSuffix(s, d.unit)
		if f, err := strconv.ParseFloat(strings.TrimSpace(number), 64); ok && err == nil && f > 0 && strings.Trim(number, "0123456789. ") == "" {
			return ": write " + strconv.FormatFloat(8*f, 'f', -1, 64) + d.write
		}
	}
	return ""
}

// meant returns ": write NUMBER and UNIT" if s ends with one of the doubtful units behind a number, and
// "" otherwise.
func meant(s string, list []doubt) string {
	for _, d := range list {
		if n := len(s) - len(d.unit); n > 0 && strings.EqualFold(s[n:], d.unit) {
			if number := strings.TrimSpace(s[:n]); strings.Trim(number, "0123456789.") == "" {
				return ": write " + number + d.write
			}
		}
	}
	return ""
}

// parseUnit reads a decimal number with a unit, and returns the number of base units, which must be
// whole. `bare` is true if the unit may be missing. `what` and `example` are parts of the error text.
func parseUnit(s, what, example string, units []unit, bare bool) (int64, error) {
	bad := fmt.Errorf("%q is no %s; write it like %s", s, what, example)
	if n, ok := exponent(s); ok && bare {
		bad = fmt.Errorf("%q is no %s; write %d, or like %s", s, what, n, example)
	} else if ok {
		bad = fmt.Errorf("%q is no %s; write %s", s, what, inUnit(n, units))
	}
	number, factor := s, 0.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	if factor == 0 {
		if !bare {
			return 0, bad
		}
		factor = 1
	}
	if number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, bad
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, bad
	}
	f *= factor
	if f != math.Trunc(f) || f > 1<<53 {
		return 0, bad
	}
	return int64(f), nil
}

// exponent reads a whole number with an exponent: 1e6.
func exponent(s string) (int64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !strings.ContainsAny(s, "eE") || f < 1 || f > 1<<53 || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// inUnit returns a number in the largest of some units that gives a whole number: 1Gbit.
func inUnit(n int64, units []unit) string {
	best := units[0]
	for _, u := range units {
		if f := int64(u.factor); n%f == 0 && (f > int64(best.factor) || n%int64(best.factor) != 0) {
			best = u
		}
	}
	return strconv.FormatInt(n/int64(best.factor), 10) + best.name
}

// ParseSize reads a number of bytes: 8, 64B, 64KiB, 1.5MiB, 2GiB, and 64K for 64KiB. It refuses 64KB,
// which is 64000 bytes or 64KiB, and says what to write.
func ParseSize(s string) (int64, error) {
	n, err := parseUnit(s, "size", "64KiB, 8MiB or 1GiB", sizeUnits, true)
	if text := meant(s, sizeDoubts); err != nil && text != "" {
		err = fmt.Errorf("%.40q is no size%s (units of 1024), or the number of bytes", s, text)
	}
	return n, err
}

// FormatSize returns a number of bytes as text, in the largest unit that gives a whole number.
func FormatSize(n int64) string {
	for _, u := range []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if f := int64(u.factor); n >= f && n%f == 0 {
			return strconv.FormatInt(n/f, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// ParseRate reads a rate in bits a second, such as 1Gbit, 2.5Gbit or 100Mbit, also as 1gbit or 1G. It
// refuses 1Gbps, which are bytes for tc, and says what to write.
func ParseRate(s string) (int64, error) {
	n, err := parseUnit(s, "rate", "100Mbit or 1Gbit (bits a second)", rateUnits, false)
	if bare, berr := strconv.ParseInt(s, 10, 64); err != nil && berr == nil && bare > 0 {
		return n, fmt.Errorf("%.40q is no rate; write %s (bits a second)", s, inUnit(bare, rateUnits))
	}
	if text := cmp.Or(meantBits(s), meant(s, rateDoubts)); err != nil && text != "" {
		err = fmt.Errorf("%.40q is no rate%s (bits a second)", s, text)
	}
	return n, err
}

// ParseOps reads a number of operations per second, such as 2.7M, 500k or 1200.
func ParseOps(s string) (int64, error) {
	number, factor := s, 1.0
	for _, u := range []unit{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			number, factor = n, u.factor
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || number == "" || strings.Trim(number, "0123456789.") != "" || f*factor > 1e12 {
		return 0, fmt.Errorf("%.40q is no rate; write it like 2.7M or 500k (operations a second)", s)
	}
	return int64(math.Round(f * factor)), nil
}

// ParseProbability reads a probability as 10% or 0.1. The result is above 0 and at most 1.
func ParseProbability(s string) (float64, error) {
	bad := fmt.Errorf("%q is no probability; write it like 10%% or 0.1, above 0 and at most 100%%", s)
	number, percent := strings.CutSuffix(s, "%")
	if number == "" || strings.Trim(number, "0123456789.eE-") != "" {
		return 0, bad
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, bad
	}
	if percent {
		f /= 100
	}
	if !percent && f > 1 && f <= 100 {
		return 0, fmt.Errorf("%q is no probability; write %s%%, or a number from 0 to 1", s, s)
	}
	if !(f > 0 && f <= 1) {
		return 0, bad
	}
	return f, nil
}

// ParseDuration reads a duration in Go's notation, which must not be negative.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if text := meant(s, timeDoubts); err != nil && text != "" {
		return 0, fmt.Errorf("%.40q is no duration%s", s, text)
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration; write it like 50us, 10ms or 1m30s", s)
	}
	return d, nil
}
