package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/switchd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// steerPrefix begins the names of the rules that run makes.
const steerPrefix = "run-steer-"

// steerSwitch has the switch steer appends, reads, both or nothing at all memory servers from now on: what rules of action steer
// there are, go. "" leaves them as they are.
func steerSwitch(cmd *cobra.Command, rack *spec.Rack, what string) error {
	switch what {
	case "":
		return nil
	case "none", "write", "read", "both":
	default:
		return badUse("--steer %.20q: take none, write, read or both", what)
	}
	var program switchd.ProgramInfo
	if err := askBox(cmd, http.MethodGet, "/program", nil, &program); err != nil {
		return err
	}
	if program.Name != "swordbox" {
		if what == "none" {
			return nil
		}
		return fmt.Errorf("the switch runs program %s, which steers nothing: write `switch: {program: swordbox}` into the rack file", program.Name)
	}
	var list []rules.Rule
	if err := askBox(cmd, http.MethodGet, "/rules", nil, &list); err != nil {
		return err
	}
	for i := range list {
		if list[i].Action != rules.Steer {
			continue
		}
		if err := askBox(cmd, http.MethodDelete, "/rules/"+url.PathEscape(list[i].ID), nil, nil); err != nil {
			return err
		}
	}
	if what == "none" {
		return nil
	}
	for _, h := range rack.ByRole(spec.Memory) {
		text := fmt.Sprintf("id=%s%s server=%s action=steer steer=%s", steerPrefix, h.Name, h.Name, what)
		var r rules.Rule
		if err := askBox(cmd, http.MethodPost, "/rules", switchd.RuleText{Rule: text}, &r); err != nil {
			return err
		}
	}
	return nil
}
