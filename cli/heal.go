package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func healCmd() *cobra.Command {
	var all bool
	var link string
	cmd := &cobra.Command{
		Use:               "heal [ID… | HOST… | partition | --link HOST | --all]",
		Short:             "End fault rules: by name, of a link, or all",
		ValidArgsFunction: everyArgument(faultIDs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if (len(ids) > 0 && (all || link != "")) || (all && link != "") {
				return badUse("give IDs, --link or --all, but only one of them")
			}
			rack, paths, err := rackOf(cmd)
			if err != nil {
				return err
			}
			h := healer{cmd: cmd, rack: rack, paths: paths}
			switch {
			case len(ids) > 0:
				err = h.some(cmd.Context(), ids)
			case link != "":
				err = h.link(cmd.Context(), link)
			default:
				err = h.all(cmd.Context())
			}
			return h.explained(cmd.Context(), err)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all fault rules and the partition (the default)")
	cmd.Flags().StringVar(&link, "link", "", "end the fault rules of this host's link and memory")
	completeFlag(cmd, "link", linkNames)
	return cmd
}

func faultIDs(cmd *cobra.Command) (ids []string) {
	if rack, paths, err := rackOf(cmd); err == nil {
		if l, err := listFaults(context.Background(), rack, paths); err == nil {
			for _, f := range l.Faults {
				ids = append(ids, f.ID)
			}
			for _, f := range l.Verbs {
				ids = append(ids, f.ID)
			}
		}
	}
	return ids
}

// partitionWord names the partition, if no rule and no host has this name.
const partitionWord = "partition"

type healer struct {
	cmd   *cobra.Command
	rack  *rackfile.Rack
	paths rackfile.Paths
}

func (h *healer) remove(ctx context.Context, node, path string, out any) error {
	return ask(ctx, control.NewClient(h.paths.Socket(node)), node, http.MethodDelete, path, nil, out)
}

// everywhere removes what a path names from all switches.
func (h *healer) everywhere(ctx context.Context, path string) error {
	return onSwitches(h.rack, h.paths, func(name string, client *control.Client) error {
		return ask(ctx, client, name, http.MethodDelete, path, nil, nil)
	})
}

// rule ends the fault rule with an ID, at the switch that has it.
func (h *healer) rule(ctx context.Context, id string) (err error) {
	healed := false
	err = onSwitches(h.rack, h.paths, func(name string, client *control.Client) error {
		if healed {
			return nil
		}
		err := ask(ctx, client, name, http.MethodDelete, "/faults/"+url.PathEscape(id), nil, nil)
		healed = err == nil
		return err
	})
	if healed {
		return nil
	}
	return err
}

func (h *healer) some(ctx context.Context, ids []string) error {
	for i, id := range ids {
		err := h.one(ctx, id)
		var answered *control.Error
		none := errors.As(err, &answered) && answered.Status == http.StatusNotFound
		switch {
		case err != nil && h.rack.IsSwitch(id):
			err = h.noFault(ctx, id)
		case none && checkLink(h.rack, id) == nil:
			err = h.link(ctx, id)
		case none && id == partitionWord:
			if err = h.everywhere(ctx, "/partition"); err == nil {
				err = say(h.cmd, "no host is kept apart")
			}
		case none:
			if err = fmt.Errorf("%w; `rdmalab faults` lists them", err); i == 0 {
				err = asUse(err) // nothing was done
			}
		case err == nil:
			err = say(h.cmd, "healed %s", id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *healer) one(ctx context.Context, id string) error {
	host, ok := strings.CutPrefix(id, tearPrefix)
	if at := verbsHost(id); at != "" && checkHost(h.rack, at) == nil {
		return h.remove(ctx, at, hostd.PathVerbsFaults+"/"+url.PathEscape(id), nil)
	}
	if !ok {
		return h.rule(ctx, id)
	}
	tears, silent := listTears(ctx, h.rack, h.paths)
	there := func(f fault.Status) bool { return f.Link == host }
	if checkHost(h.rack, host) == nil && !slices.ContainsFunc(tears, there) && !slices.Contains(silent, host) {
		return fmt.Errorf("there is no fault %s; `rdmalab faults` lists them", id)
	}
	return h.tear(ctx, host)
}

func (h *healer) link(ctx context.Context, link string) error {
	if err := checkLink(h.rack, link); err != nil {
		return err
	}
	n, _, err := h.rules(ctx, "/faults?link="+url.QueryEscape(link), link)
	if err != nil {
		return err
	}
	if err := say(h.cmd, "healed %s of %s", count(n, "active fault"), link); err != nil {
		return err
	}
	return h.sayOther(ctx, link)
}

func (h *healer) all(ctx context.Context) error {
	n, silent, err := h.rules(ctx, "/faults", "")
	if err == nil {
		err = say(h.cmd, "healed %s", count(n, "active fault"))
	}
	if err == nil && len(silent) > 0 {
		err = say(h.cmd, "no answer from %v: torn copies there, if any, go on", silent)
	}
	if err == nil {
		err = h.sayOther(ctx, "")
	}
	return err
}

// rules ends fault rules of the switch, those that the API path `path` selects, and the torn copies
// of a host. If host is "", it ends the partition and the torn copies of all hosts. It returns how
// many rules and torn copies it has ended, and the hosts that did not answer.
func (h *healer) rules(ctx context.Context, path, host string) (int, []string, error) {
	var out switchd.Healed
	at := h.rack.SwitchNames()
	if host != "" {
		at = []string{h.rack.SwitchOf(host)}
	}
	if err := onSwitches(h.rack, h.paths, func(name string, client *control.Client) error {
		if !slices.Contains(at, name) {
			return nil
		}
		var own switchd.Healed
		err := ask(ctx, client, name, http.MethodDelete, path, nil, &own)
		out.Rules += own.Rules
		return err
	}); err != nil {
		return 0, nil, err
	}
	if host == "" { // first, so that the partition ends even if a host does not answer
		if err := h.everywhere(ctx, "/partition"); err != nil {
			return 0, nil, err
		}
	}
	tears, silent := listTears(ctx, h.rack, h.paths)
	for _, t := range tears {
		if host == "" || t.Link == host {
			if err := h.tear(ctx, t.Link); err != nil {
				return 0, nil, err
			}
			out.Rules++
		}
	}
	var boundary []string // the hosts with rules at the verbs boundary
	for _, v := range listVerbs(ctx, h.rack, h.paths) {
		if (host == "" || v.Host == host) && !slices.Contains(boundary, v.Host) {
			boundary = append(boundary, v.Host)
		}
	}
	for _, name := range boundary {
		var ended hostd.VerbsHealed
		if err := h.remove(ctx, name, hostd.PathVerbsFaults, &ended); err != nil {
			return 0, nil, err
		}
		out.Rules += ended.Rules
	}
	return out.Rules, silent, nil
}

func (h *healer) tear(ctx context.Context, host string) error {
	if err := checkHost(h.rack, host); err != nil {
		return err
	}
	return h.remove(ctx, host, hostd.PathTear, nil)
}

// count returns a number with its noun: "1 fault", "2 faults".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
