package hugepages

import (
	"bufio"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func TestAvailable(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:       16 kB\nMemFree:  4 kB\nMemAvailable:     12 kB\n": 12 << 10,
		"MemTotal:       16 kB\n": 0, "MemAvailable: x kB\n": 0, "MemAvailable: -5 kB\n": 0, "MemAvailable: 12\n": 0, "": 0,
	} {
		if got := available(strings.NewReader(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

const reservedBytes = 4 << 30

// reserved reserves once, as a program does: memory that the heap had before would be cleared.
var reserved = sync.OnceValue(func() uintptr { return reserve(reservedBytes) })

// The heap grows into what is reserved, which the kernel has marked with the flag hg, and has taken no
// memory for before.
func TestHeapGrowsIntoHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil || raced {
		if at := reserved(); at != 0 {
			t.Errorf("reserved %#x without huge pages, or with the race detector", at)
		}
		return
	}
	const size = reservedBytes
	at := reserved()
	if at == 0 {
		t.Fatal("nothing is reserved")
	}
	if m := mapping(t, at+size/2); !m.huge || m.resident > size/2 {
		t.Fatalf("%+v, want huge pages, and nearly nothing of %d bytes in memory", m, size)
	}
	var kept [][]byte
	inside := 0
	for range 64 {
		b := make([]byte, 4<<20)
		if a := uintptr(unsafe.Pointer(&b[0])); at <= a && a < at+size {
			inside++
		}
		kept = append(kept, b)
	}
	if inside < len(kept)*9/10 {
		t.Errorf("%d of %d new objects are where huge pages are, from %#x on; the last is at %p", inside, len(kept), at, kept[len(kept)-1])
	}
}

// A process that has a limit of memory or of addresses keeps its heap as it is.
func TestLimits(t *testing.T) {
	if n := size(); n <= 0 || n > most || n%hugePage != 0 {
		t.Errorf("size %d of a process without limits", n)
	}
	was := debug.SetMemoryLimit(1 << 30)
	if n := size(); n != 0 {
		t.Errorf("size %d with a limit", n)
	}
	debug.SetMemoryLimit(was)
	if at := reserve(math.MaxInt64 &^ (hugePage - 1)); at != 0 {
		t.Errorf("reserved more addresses than there are, at %#x", at)
	}
	if at := reserve(hugePage); at != 0 {
		t.Errorf("reserved a single huge page, at %#x", at)
	}
}

// memory is what the kernel says of a mapping.
type memory struct {
	huge     bool
	resident int // bytes
}

// mapping returns what the kernel says of the mapping in which an address is.
func mapping(t *testing.T, address uintptr) (m memory) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	inside := false
	for in := bufio.NewScanner(f); in.Scan(); {
		words := strings.Fields(in.Text())
		if lo, hi, ok := strings.Cut(words[0], "-"); ok {
			from, err1 := strconv.ParseUint(lo, 16, 64)
			to, err2 := strconv.ParseUint(hi, 16, 64)
			inside = err1 == nil && err2 == nil && uintptr(from) <= address && address < uintptr(to)
		}
		switch {
		case !inside:
		case words[0] == "Rss:":
			if m.resident, err = strconv.Atoi(words[1]); err != nil {
				t.Fatal(err)
			}
			m.resident <<= 10
		case words[0] == "VmFlags:":
			m.huge = strings.Contains(strings.Join(words, " ")+" ", " hg ")
			return m
		}
	}
	t.Fatalf("%#x is not mapped", address)
	return m
}
