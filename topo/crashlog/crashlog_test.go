package crashlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

// envCrash makes the test program a daemon that ends as it says, below a supervisor.
const envCrash = "RDMALAB_TEST_CRASH"

// endings are ways to end a process, each in a goroutine that is not the main one.
var endings = map[string]func(){
	"panic": func() { panic("planted\nin two lines") },
	"nil":   func() { var p *int; *p = 1 },
	"map": func() {
		m := map[int]int{}
		for range 2 {
			go func() {
				for {
					m[1]++
				}
			}()
		}
		select {}
	},
	"stack": func() {
		var f func(int) int
		debug.SetMaxStack(1 << 20)
		f = func(n int) int { return f(n+1) + 1 }
		f(0)
	},
	"memory": func() {
		var s [][]byte
		for {
			s = append(s, make([]byte, 1<<46)) //nolint:staticcheck // memory is to run out
		}
	},
	"exit":    func() { os.Exit(7) },
	"handler": func() { panic(fmt.Sprintf("%v, in a handler:\ngoroutine 9 [running]:", "planted")) },
}

func TestMain(m *testing.M) {
	how := os.Getenv(envCrash)
	if how == "" {
		os.Exit(m.Run())
	}
	if !Supervised() {
		status, err := Supervise(os.Stderr, "rack", "r", "host", "cn0")
		if err != nil {
			panic(err)
		}
		os.Exit(status)
	}
	fmt.Fprintln(os.Stderr, `{"level":"INFO","msg":"begins"}`)
	fmt.Fprintln(os.Stderr, "a library says something")
	var wait sync.WaitGroup
	wait.Go(func() { endings[how]() })
	wait.Wait()
	time.Sleep(time.Minute) // the other goroutine ends the process
}

type line struct{ Level, Msg, Panic, Stack, Rack, Host string }

// Whatever ends a process in any of its goroutines is one record in its log, and every line of the log is JSON.
func TestWhatEndsAProcessIsARecord(t *testing.T) {
	for how, want := range map[string]struct {
		status int
		panic  string
	}{
		"panic": {2, "planted\n"}, "nil": {2, "runtime error: invalid memory address or nil pointer dereference"},
		"map": {2, "fatal error: concurrent map"}, "stack": {2, "fatal error: stack overflow"}, "memory": {2, "fatal error: "},
		"exit": {7, ""}, "handler": {2, "planted, in a handler:"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envCrash+"="+how, "GORACE=halt_on_error=0")
			var out bytes.Buffer
			cmd.Stderr = &out
			_ = cmd.Run() // the status is looked at
			if got := cmd.ProcessState.ExitCode(); got != want.status {
				t.Errorf("status %d, want %d", got, want.status)
			}
			var crashes []line
			for text := range strings.Lines(out.String()) {
				var x line
				if err := json.Unmarshal([]byte(text), &x); err != nil {
					t.Errorf("%s: %v", text, err)
				}
				if x.Level == "ERROR" {
					crashes = append(crashes, x)
				}
			}
			if !strings.Contains(out.String(), "a library says something") || !strings.Contains(out.String(), `"begins"`) {
				t.Errorf("%s", &out)
			}
			switch {
			case want.panic == "" && len(crashes) > 0, want.panic != "" && len(crashes) != 1:
				t.Errorf("%d records of a crash:\n%s", len(crashes), &out)
			case want.panic == "":
			case !strings.Contains(crashes[0].Panic, want.panic) || !strings.Contains(crashes[0].Stack, "crashlog_test.go") || crashes[0].Rack != "r" || crashes[0].Host != "cn0" || crashes[0].Msg == "":
				t.Errorf("%+v", crashes[0])
			}
		})
	}
}

// A Filter takes output in any pieces, passes records that come in the middle of a crash, and writes the crash when
// nothing more comes, though the output goes on.
func TestFilterTakesAnyPieces(t *testing.T) {
	text := "{\"msg\":\"a\"}\nplain\n\n{no json}\nruntime: a warning\n"
	crash := "panic: x\n\t\n{\"msg\":\"b\"}\n[signal SIGSEGV]\n\ngoroutine 7 [running]:\nmain.f()\n\t/f.go:1"
	for step := 1; step < 40; step += 3 {
		var out safe
		f := NewFilter(&out)
		for rest := text + crash; rest != ""; {
			n := min(step, len(rest))
			if _, err := f.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if step > 1 {
			_ = f.Close()
		}
		for end := time.Now().Add(20 * time.Second); step == 1 && !strings.Contains(out.String(), "goroutine 7") && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		var msgs []string
		for text := range strings.Lines(out.String()) {
			var x line
			if err := json.Unmarshal([]byte(text), &x); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			msgs = append(msgs, x.Msg)
			if x.Panic != "" && (x.Panic != "x\n\t\n[signal SIGSEGV]" || x.Stack != "goroutine 7 [running]:\nmain.f()\n\t/f.go:1") {
				t.Errorf("%+v", x)
			}
		}
		if got := strings.Join(msgs, "|"); !strings.HasPrefix(got, "a|plain|{no json}|") || len(msgs) != 5 && len(msgs) != 6 {
			t.Errorf("step %d: %s", step, got)
		}
	}
}

// A crash without an end, and a line without an end, take bounded memory.
func TestFilterIsBounded(t *testing.T) {
	var out safe
	f := NewFilter(&out)
	for range 100 {
		_, _ = f.Write(bytes.Repeat([]byte("a"), 100_000))
	}
	_, _ = f.Write([]byte("\npanic: x\n\ngoroutine 1 [running]:\n"))
	for range 1000 {
		_, _ = f.Write(append(bytes.Repeat([]byte("b"), 10_000), '\n'))
	}
	if f.size > maxCrash+20_000 && len(f.crash) > 200 {
		t.Errorf("%d lines, %d bytes", len(f.crash), f.size)
	}
	_ = f.Close()
	if n := len(out.String()); n > 13<<20 {
		t.Errorf("%d bytes", n)
	}
}

// safe is a buffer for several goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.b.Write(p) }

func (s *safe) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }
