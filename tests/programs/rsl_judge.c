// The result of Debian's globus-rsl for specifications: the reference for gantry's own parser. Reads "LENGTH\n" and
// that many bytes, repeatedly. Answers each with one line: the parse, a tab, the evaluation. "error": refused. Parse
// and evaluation are written as (OPERATOR ...) for specifications, [..] for sequences, $[..] for references, #[..]
// for concatenations, and LENGTH:BYTES in hexadecimal for literals. Each text has a separate process, because the
// library crashes on some.
#include <globus_common.h>
#include <globus_rsl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void show_text(const char *text) {
    printf("%zu:", strlen(text));
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) printf("%02x", *at);
}

static void show_value(globus_rsl_value_t *value);

static void show_list(globus_list_t *list) {
    putchar('[');
    for (const char *between = ""; !globus_list_empty(list); list = globus_list_rest(list), between = " ") {
        fputs(between, stdout);
        show_value(globus_list_first(list));
    }
    putchar(']');
}

static void show_value(globus_rsl_value_t *value) {
    if (globus_rsl_value_is_literal(value)) {
        show_text(globus_rsl_value_literal_get_string(value));
    } else if (globus_rsl_value_is_sequence(value)) {
        show_list(globus_rsl_value_sequence_get_value_list(value));
    } else if (globus_rsl_value_is_variable(value)) {
        putchar('$');
        show_value(globus_rsl_value_variable_get_sequence(value));
    } else {
        fputs("#[", stdout);
        show_value(globus_rsl_value_concatenation_get_left(value));
        putchar(' ');
        show_value(globus_rsl_value_concatenation_get_right(value));
        putchar(']');
    }
}

static void show(globus_rsl_t *spec) {
    if (globus_rsl_is_relation(spec)) {
        static const char *const names[] = {"?", "=", "!=", ">", ">=", "<", "<="};
        int operator = globus_rsl_relation_get_operator(spec);
        printf("(%s ", names[operator]);
        show_text(globus_rsl_relation_get_attribute(spec));
        putchar(' ');
        show_value(globus_rsl_relation_get_value_sequence(spec));
        putchar(')');
        return;
    }
    printf("(%c", globus_rsl_is_boolean_and(spec) ? '&' : globus_rsl_is_boolean_or(spec) ? '|' : '+');
    for (globus_list_t *list = globus_rsl_boolean_get_operand_list(spec); !globus_list_empty(list);
         list = globus_list_rest(list)) {
        putchar(' ');
        show(globus_list_first(list));
    }
    putchar(')');
}

static void judge(char *text) {
    globus_rsl_t *spec = globus_rsl_parse(text);
    if (spec == NULL) {
        puts("error\terror");
        return;
    }
    show(spec);
    putchar('\t');
    globus_symboltable_t table;
    globus_symboltable_init(&table, globus_hashtable_string_hash, globus_hashtable_string_keyeq);
    globus_symboltable_create_scope(&table);
    if (globus_rsl_eval(spec, &table) == 0) {
        show(spec);
        putchar('\n');
    } else {
        puts("error");
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    if (globus_module_activate(GLOBUS_COMMON_MODULE) != 0) return 1;
    size_t length;
    while (scanf("%zu%*1[\n]", &length) == 1) {
        char *text = calloc(length + 1, 1);
        if (fread(text, 1, length, stdin) != length) return 1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            judge(text);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0) {
            puts("died\tdied");
        }
        free(text);
        fflush(stdout);
    }
    return 0;
}
