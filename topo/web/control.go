package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
)

const (
	// maxBody bounds the body of a request, maxOutput what is kept of a command's output, in bytes.
	maxBody   = 16 << 10
	maxOutput = 4 << 10
	// commandWait is how long a command may run, and stopWait how long it may take to end then.
	commandWait = 30 * time.Second
	stopWait    = 5 * time.Second
	// maxWord bounds a word of a command line that comes from a request, and maxOpcodes its opcodes.
	maxWord    = 64
	maxOpcodes = 32
)

// FaultRequest is the body of POST /api/v1/faults: a fault rule as the command inject takes it.
type FaultRequest struct {
	// Kind is loss, drop, duplicate, delay, reorder, corrupt, rate, blackhole or tear; Amount is 10%, 1ms
	// or 1Gbit, as the kind wants it.
	Kind   string `json:"kind"`
	Amount string `json:"amount,omitempty"`
	// Link names the host on whose link the fault is, several with commas, or all; with tear the host.
	Link string `json:"link"`
	// Dir is up, down or both.
	Dir     string   `json:"dir,omitempty"`
	Class   string   `json:"class,omitempty"`
	Opcodes []string `json:"opcodes,omitempty"`
	// Next ends the rule after so many hits in each direction, For after a time like 10s.
	Next int    `json:"next,omitempty"`
	For  string `json:"for,omitempty"`
	// Record makes a recording of the links that begins before the fault.
	Record bool `json:"record,omitempty"`
}

// ActionRequest is the body of POST /api/v1/nodes/{node}/actions.
type ActionRequest struct {
	Action string `json:"action"` // crash, restart, hang or resume
}

// LinkRequest is the body of POST /api/v1/links/{host}.
type LinkRequest struct {
	State string `json:"state"` // up or down
}

// Done is what a command has answered.
type Done struct {
	// Command is what a user would have typed.
	Command string `json:"command"`
	Output  string `json:"output"`
	// Recording is that of FaultRequest.Record; Trouble says why there is none.
	Recording *Recording `json:"recording,omitempty"`
	Trouble   string     `json:"trouble,omitempty"`
}

// word is what a request may put into a command line. A slash comes only before the name of a host's NIC.
var word = regexp.MustCompile(`^[A-Za-z0-9_.%*?\[\],:][A-Za-z0-9_.%*?\[\],:-]*(/rxe[a-z0-9_]+)?$`)

// checkWord returns an error if a value of a request is no word of a command line. What the word means is
// for the command to say.
func checkWord(field, value string) error {
	if len(value) > maxWord || !word.MatchString(value) {
		return control.Errorf(http.StatusBadRequest, "%s %.80q: use letters, digits and . _ - %% , : at most %d of them", field, value, maxWord)
	}
	return nil
}

// args makes the command line of a fault.
func (f *FaultRequest) args() ([]string, error) {
	if f.Kind == "" || f.Link == "" {
		return nil, control.Errorf(http.StatusBadRequest, "a fault needs kind and link")
	}
	if len(f.Opcodes) > maxOpcodes {
		return nil, control.Errorf(http.StatusBadRequest, "%d opcodes: at most %d", len(f.Opcodes), maxOpcodes)
	}
	for _, w := range append([]string{f.Kind, f.Amount, f.Link, f.Dir, f.Class, f.For}, f.Opcodes...) {
		if w != "" {
			if err := checkWord("the fault's", w); err != nil {
				return nil, err
			}
		}
	}
	out := []string{"inject", f.Kind}
	if f.Amount != "" {
		out = append(out, f.Amount)
	}
	flag := "--link"
	if f.Kind == "tear" {
		flag = "--host"
	}
	out = append(out, flag, f.Link)
	for _, o := range []struct{ flag, value string }{{"--dir", f.Dir}, {"--class", f.Class}, {"--for", f.For}} {
		if o.value != "" {
			out = append(out, o.flag, o.value)
		}
	}
	for _, o := range f.Opcodes {
		out = append(out, "--opcode", o)
	}
	switch {
	case f.Next == 1:
		out = append(out, "--once")
	case f.Next != 0:
		out = append(out, "--next", strconv.Itoa(f.Next))
	}
	return out, nil
}

// runner runs commands of this program, one at a time.
type runner struct {
	program string
	flags   []string // that name the rack
	log     *slog.Logger
	turn    chan struct{}
}

// run runs a command and returns what it has printed. A command that fails is an error with its text.
func (c *runner) run(ctx context.Context, r *http.Request, args ...string) (*Done, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, control.Errorf(http.StatusServiceUnavailable, "another command runs")
	}
	args = append(args, c.flags...)
	done := &Done{Command: "rdmalab " + strings.Join(args, " ")}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopWait
	err := cmd.Run()
	done.Output = strings.ToValidUTF8(strings.TrimSpace(string(out.Bytes()[:min(out.Len(), maxOutput)])), "�")
	c.log.Info("command", "line", done.Command, "from", r.RemoteAddr, "failed", err != nil)
	if err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(done.Output, "rdmalab: "), filepath.Base(c.program)+": ")
		if text == "" {
			text = err.Error()
		}
		return nil, control.Errorf(http.StatusUnprocessableEntity, "%s", text)
	}
	return done, nil
}

// decode reads a JSON body.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	if ct, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(ct) != "application/json" {
		return control.Errorf(http.StatusUnsupportedMediaType, "the body has to be application/json")
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the JSON value")
		}
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return control.Errorf(http.StatusRequestEntityTooLarge, "more than %d bytes", maxBody)
	case err != nil:
		return control.Errorf(http.StatusBadRequest, "the body: %v", err)
	}
	return nil
}

func (s *Site) inject(w http.ResponseWriter, r *http.Request) (any, error) {
	var in FaultRequest
	if err := decode(w, r, &in); err != nil {
		return nil, err
	}
	args, err := in.args()
	if err != nil {
		return nil, err
	}
	if !in.Record {
		return s.runner.run(r.Context(), r, args...)
	}
	var done *Done
	// The links of the fault alone would lack what the switch sends on; the recording has all.
	rec, err := s.recorder.record(r.Context(), &RecordRequest{Seconds: injectSeconds}, maxInjectRead, func() (rules []string, err error) {
		done, err = s.runner.run(r.Context(), r, args...)
		if err == nil {
			rules = ruleNames(done.Output)
		}
		return rules, err
	})
	switch {
	case done == nil && err == nil:
		return nil, control.Errorf(http.StatusInternalServerError, "the fault was not injected")
	case done == nil:
		return nil, err
	case err != nil:
		done.Trouble = err.Error()
	}
	done.Recording = rec
	return done, nil
}

// ruleNames returns the names of the rules that inject has printed, a line each: "f1: loss 5% --link cn0".
func ruleNames(output string) (ids []string) {
	for line := range strings.Lines(output) {
		if id, _, ok := strings.Cut(line, ": "); ok && word.MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *Site) heal(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	if id == "" {
		return s.runner.run(r.Context(), r, "heal", "--all")
	}
	if err := checkWord("the fault", id); err != nil {
		return nil, err
	}
	return s.runner.run(r.Context(), r, "heal", id)
}

func (s *Site) act(w http.ResponseWriter, r *http.Request) (any, error) {
	var in ActionRequest
	if err := decode(w, r, &in); err != nil {
		return nil, err
	}
	if err := checkWord("the node", r.PathValue("node")); err != nil {
		return nil, err
	}
	switch in.Action {
	case "crash", "restart", "hang", "resume":
		return s.runner.run(r.Context(), r, in.Action, r.PathValue("node"))
	}
	return nil, control.Errorf(http.StatusBadRequest, "there is no action %.60q; there are crash, restart, hang and resume", in.Action)
}

func (s *Site) link(w http.ResponseWriter, r *http.Request) (any, error) {
	var in LinkRequest
	if err := decode(w, r, &in); err != nil {
		return nil, err
	}
	if err := checkWord("the host", r.PathValue("host")); err != nil {
		return nil, err
	}
	if in.State != "up" && in.State != "down" {
		return nil, control.Errorf(http.StatusBadRequest, "a link is up or down, and not %.60q", in.State)
	}
	return s.runner.run(r.Context(), r, "link", r.PathValue("host"), in.State)
}
