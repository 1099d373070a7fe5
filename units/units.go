package units

import (
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
// another one comes after it: B after KiB.
var (
	sizeUnits = []unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}
	rateUnits = []unit{{"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}, {"bit", 1}}
)

// parseUnit reads a decimal number with a unit, and returns the number of base units, which must be
// whole. `bare` is true if the unit may be missing. `what` and `example` are parts of the error text.
func parseUnit(s, what, example string, units []unit, bare bool) (int64, error) {
	bad := fmt.Errorf("%q is no %s; write it like %s", s, what, example)
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

// ParseSize reads a number of bytes: 8, 64B, 64KiB, 1.5MiB, 2GiB.
func ParseSize(s string) (int64, error) {
	return parseUnit(s, "size", "64KiB, 8MiB or 1GiB", sizeUnits, true)
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

// ParseRate reads a rate in bits a second, such as 1Gbit, 2.5Gbit or 100Mbit.
func ParseRate(s string) (int64, error) {
	return parseUnit(s, "rate", "100Mbit or 1Gbit (bits a second)", rateUnits, false)
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
	if !(f > 0 && f <= 1) {
		return 0, bad
	}
	return f, nil
}

// ParseDuration reads a duration in Go's notation, which must not be negative.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration; write it like 50us, 10ms or 1m30s", s)
	}
	return d, nil
}
