package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// steerPrefix begins the IDs of the rules that run and experiments add, and remove at their end.
// runningProgram finds by it the rules of a command that was killed before it could remove them.
const steerPrefix = "run-steer-"

// undoPatience bounds the time for replacing the switch program or stopping a store. It applies
// also after an interrupt.
const undoPatience = 10 * time.Second

type program struct {
	name  string
	rules []string
	ids   []string // IDs of the rules
}

func (p program) text() switchd.ProgramText { return switchd.ProgramText{Name: p.name, Rules: p.rules} }

func (p program) String() string {
	if len(p.ids) == 0 {
		return "program " + p.name
	}
	return fmt.Sprintf("program %s with rules %s", p.name, strings.Join(p.ids, ", "))
}

// without returns p without its rules of these actions.
func (p program) without(actions ...rules.Action) program {
	out := program{name: p.name}
	for i, text := range p.rules {
		if r, err := rules.Parse(text); err != nil || !slices.Contains(actions, r.Action) {
			out.rules, out.ids = append(out.rules, text), append(out.ids, p.ids[i])
		}
	}
	return out
}

// steerChoices are the values of --steer.
var steerChoices = []string{"none", "write", "read", "both"}

// steerSwitch makes the switch steer appends, READs, both or nothing for all memory servers. It
// loads program swordbox for that if another one runs. If what is "", it changes nothing. undo
// restores the former program and rules; it is never nil.
func steerSwitch(cmd *cobra.Command, rack *rackfile.Rack, what string, told io.Writer) (undo func() error, err error) {
	undo = func() error { return nil }
	if what == "" {
		return undo, nil
	}
	now, was, err := runningProgram(cmd)
	if err != nil {
		return undo, err
	}
	want := steering(rack, was, what)
	if slices.Equal(want.rules, now.rules) && want.name == now.name && want.name == was.name {
		return undo, nil
	}
	free := outlive(cmd)
	if err := putProgram(cmd, want); err != nil {
		free()
		return undo, fmt.Errorf("--steer %s: %w", what, err)
	}
	told = hinted(cmd, told)
	_, _ = fmt.Fprintln(told, steeringText(want, was, what))
	return func() error {
		defer free()
		if err := putProgram(cmd, was); err != nil {
			return fmt.Errorf("the switch still has %v: %w; `rdmalab switch program %s` loads the former program", want, err, was.name)
		}
		_, _ = fmt.Fprintf(told, "the switch runs %v again\n", was)
		return nil
	}, nil
}

// steeringText says what the switch does for a run with --steer what, and how that ends if the command is killed:
// loading a program removes the present rules, and brings those of the rack file back.
func steeringText(want, was program, what string) string {
	steered := map[string]string{"none": "nothing", "write": "appends", "read": "READs", "both": "appends and READs"}[what]
	if what != "none" {
		steered += " to the newest version of their key"
	}
	rules := ""
	if len(was.rules) > 0 {
		rules = ", without rules that were added by hand"
	}
	return fmt.Sprintf("for this run the switch steers %s (%v; before: %v); if this command is killed, `rdmalab switch program %s` restores that%s",
		steered, want, was, was.name, rules)
}

// outlive keeps the command running until it has restored the switch's program. The command
// continues when the reader of its output ends (| head), and treats a hang-up of the terminal as an
// interrupt. free ends this protection.
func outlive(cmd *cobra.Command) (free func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // catching it is enough: the write returns an error
	if signal.Ignored(syscall.SIGHUP) {    // the command runs under nohup
		return func() { signal.Stop(broken) }
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	cmd.SetContext(ctx)
	return func() { stop(); signal.Stop(broken) }
}

// withUndo joins err, the error of a run, and undone, the error of restoring the switch. An exitCode
// has no message: if err is one, withUndo prints undone and returns err.
func withUndo(cmd *cobra.Command, err, undone error) error {
	var code exitCode
	if undone == nil || !errors.As(err, &code) {
		return errors.Join(err, undone)
	}
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), hintsOf(cmd).error(undone))
	return err
}

// putProgram makes the switch run a program. An interrupt does not end the request, so the caller
// knows afterwards which program runs.
func putProgram(cmd *cobra.Command, p program) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), undoPatience)
	defer cancel()
	client, err := switchControl(cmd)
	if err != nil {
		return err
	}
	return client.Call(ctx, http.MethodPut, "/program", p.text(), nil)
}

// runningProgram returns the program that the switch runs now, and the program to restore. They
// differ only after a run with --steer, or an experiment, was killed. Then the program to restore
// lacks the rules that this command has added. If it has no other rules, it is the program that the
// rack file names.
func runningProgram(cmd *cobra.Command) (now, was program, err error) {
	var info switchd.ProgramInfo
	var list []rules.Rule
	err = errors.Join(askBox(cmd, http.MethodGet, "/program", nil, &info), askBox(cmd, http.MethodGet, "/rules", nil, &list))
	if err != nil {
		return now, was, err
	}
	now.name, was.name = info.Name, info.Name
	left := false
	for i := range list {
		now.rules, now.ids = append(now.rules, list[i].String()), append(now.ids, list[i].ID)
		if strings.HasPrefix(list[i].ID, steerPrefix) {
			left = true
			continue
		}
		was.rules, was.ids = append(was.rules, list[i].String()), append(was.ids, list[i].ID)
	}
	if left && len(was.rules) == 0 {
		was.name = info.Described
	}
	return now, was, nil
}

// steering returns program swordbox with the rules of `was`, except that its steering rules are
// replaced by one for each memory server. If `what` is "none", it returns `was` without steering
// rules.
func steering(rack *rackfile.Rack, was program, what string) program {
	want := was.without(rules.Steer)
	if what == "none" {
		return want
	}
	want.name = rackfile.ProgramSwordBox
	for _, h := range rack.ByRole(rackfile.Memory) {
		id := steerPrefix + h.Name
		want.rules = append(want.rules, fmt.Sprintf("id=%s server=%s action=steer steer=%s", id, h.Name, what))
		want.ids = append(want.ids, id)
	}
	return want
}
