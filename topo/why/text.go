package why

import (
	"fmt"
	"strings"
	"time"
)

func plural[N uint32 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func times(n uint32) string {
	switch n {
	case 0:
		return "not once"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func orPacket(s string) string {
	if s == "" {
		return "the packet"
	}
	return s
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// short rounds a duration to what people read.
func short(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}
