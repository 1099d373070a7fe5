package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func reportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "report [JUNIT.xml...]",
		Short: "Print the results of a CI job as a Markdown table",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				name := os.Getenv(junitEnv)
				if name == "" {
					return badUse("which file? Name it, or set %s", junitEnv)
				}
				args = []string{name}
			}
			var all []junitSuite
			for _, name := range args {
				data, err := os.ReadFile(name)
				if err != nil {
					return asUse(err)
				}
				f, err := readJUnit(data)
				if err != nil {
					return badUse("%s: %w", name, err)
				}
				all = append(all, f.Suites...)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), markdown(all))
			return err
		},
	}
}

// markdown draws the cases of suites as a table, and says how many failed.
func markdown(suites []junitSuite) string {
	var b strings.Builder
	total, bad := 0, 0
	for i := range suites {
		for _, c := range suites[i].Cases {
			if total == 0 {
				b.WriteString("| | command | seconds | why |\n| --- | --- | ---: | --- |\n")
			}
			total++
			state, why := "ok", cmp.Or(c.Failure, c.Error)
			message := ""
			if why != nil {
				bad++
				state, message = "**failed**", why.Message
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", state, cell(strings.ReplaceAll(c.Name, "`", "'")), c.Time, cell(message))
		}
	}
	if total == 0 {
		return "No command has checked anything.\n"
	}
	fmt.Fprintf(&b, "\n%d of %d failed.\n", bad, total)
	return b.String()
}

// cell makes a text one cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}
