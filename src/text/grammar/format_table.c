/* One row for each format: a regular expression over the whole string, and the greatest length where there is one. Expressions are
 * put together from named parts: <hex> in one of them stands for the part of that name.
 *
 * Dates follow the calendar. Leap seconds are those of 23:59:60 UTC, with offsets of whole quarters of an hour. Host names are ASCII
 * without the labels (xn--) that stand for others. `regex` takes expressions whose groups are nested three deep. */
#include "text/grammar/format_table.h"

#include "text/grammar/regex.h"

static const struct {
    const char *name, *pattern;
} parts[] = {
    {"hex", "[0-9A-Fa-f]"},
    {"alnum", "[A-Za-z0-9]"},
    {"beyond", "[\\u0080-\\uD7FF\\uE000-\\U0010FFFF]"},
    /* addresses */
    {"octet", "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"},
    {"ipv4", "<octet>(\\.<octet>){3}"},
    {"h16", "<hex>{1,4}"},
    {"ls32", "(<h16>:<h16>|<ipv4>)"},
    {"ipv6", "((<h16>:){6}<ls32>|::(<h16>:){5}<ls32>|(<h16>)?::(<h16>:){4}<ls32>|((<h16>:){0,1}<h16>)?::(<h16>:){3}<ls32>|"
             "((<h16>:){0,2}<h16>)?::(<h16>:){2}<ls32>|((<h16>:){0,3}<h16>)?::<h16>:<ls32>|((<h16>:){0,4}<h16>)?::<ls32>|"
             "((<h16>:){0,5}<h16>)?::<h16>|((<h16>:){0,6}<h16>)?::)"},
    /* a label of a host name that does not begin with xn-- */
    {"more", "(<alnum>|-)"},
    {"label-any", "<alnum>(<more>{0,61}<alnum>)?"},
    {"label", "([A-WYZa-wyz0-9](<more>{0,61}<alnum>)?|[xX](|<alnum>|[A-MO-Za-mo-z0-9\\-]<more>{0,60}<alnum>|"
              "[nN]<alnum>|[nN]<alnum><more>{0,59}<alnum>|[nN]-<alnum>|[nN]-<alnum><more>{0,58}<alnum>))"},
    {"mail-literal", "\\[(<ipv4>|IPv6:<ipv6>)\\]"},
    {"quoted", "\"([ !#-\\[\\]-~]|\\\\[ -~])*\""},
    {"atom", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]+"},
    {"idn-atom", "([A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]|<beyond>)+"},
    {"idn-label", "(<alnum>|<beyond>)((<more>|<beyond>)*(<alnum>|<beyond>))?"},
    /* URIs, IRIs */
    {"percent", "%<hex><hex>"},
    {"pchar", "([A-Za-z0-9\\-._~!$&'()*+,;=:@]|<percent>)"},
    {"ip-literal", "\\[(<ipv6>|v<hex>+\\.[A-Za-z0-9\\-._~!$&'()*+,;=:]+)\\]"},
    {"user", "([A-Za-z0-9\\-._~!$&'()*+,;=:]|<percent>)*"},
    {"reg-name", "([A-Za-z0-9\\-._~!$&'()*+,;=]|<percent>)*"},
    {"authority", "(<user>@)?(<ip-literal>|<reg-name>)(:[0-9]*)?"},
    {"slashes", "(/<pchar>*)*"},
    {"tail", "(\\?(<pchar>|[/?])*)?(#(<pchar>|[/?])*)?"},
    {"scheme", "[A-Za-z][A-Za-z0-9+\\-.]*:"},
    {"uri", "<scheme>(//<authority><slashes>|/(<pchar>+<slashes>)?|<pchar>+<slashes>|)<tail>"},
    {"no-colon", "([A-Za-z0-9\\-._~!$&'()*+,;=@]|<percent>)+"},
    {"relative", "(//<authority><slashes>|/(<pchar>+<slashes>)?|<no-colon><slashes>|)<tail>"},
    {"ucs",
     "[\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\U00010000-\\U0001FFFD\\U00020000-\\U0002FFFD\\U00030000-\\U0003FFFD\\U000E1000-\\U000EFFFD]"},
    {"ichar", "(<pchar>|<ucs>)"},
    {"iauthority",
     "(([A-Za-z0-9\\-._~!$&'()*+,;=:]|<percent>|<ucs>)*@)?(<ip-literal>|([A-Za-z0-9\\-._~!$&'()*+,;=]|<percent>|<ucs>)*)(:[0-9]*)?"},
    {"islashes", "(/<ichar>*)*"},
    {"itail", "(\\?(<ichar>|[/?\\uE000-\\uF8FF])*)?(#(<ichar>|[/?])*)?"},
    {"iri", "<scheme>(//<iauthority><islashes>|/(<ichar>+<islashes>)?|<ichar>+<islashes>|)<itail>"},
    {"irelative", "(//<iauthority><islashes>|/(<ichar>+<islashes>)?|(<no-colon>|<ucs>)+<islashes>|)<itail>"},
    {"variable", "([A-Za-z0-9_]|<percent>)(\\.?([A-Za-z0-9_]|<percent>))*(:[1-9][0-9]{0,3}|\\*)?"},
    /* dates and times */
    {"year", "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"},
    {"leap-year", "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"},
    {"date",
     "(<year>-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|<leap-year>-02-29)"},
    {"fraction", "(\\.[0-9]+)?"},
    {"time", "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]<fraction>([Zz]|[+\\-]([01][0-9]|2[0-3]):[0-5][0-9])"},
    {"dur-time", "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"},
    {"dur-date", "([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)"},
    {"pointer", "(/([^~/]|~[01])*)*"},
    /* regular expressions */
    {"re-member", "([^\\[\\]\\\\^\\-]|\\\\[dDwWsSnrtfv.\\\\+*?()|^$\\[\\]{}/\\-]|a-z|A-Z|0-9|a-f|A-F)"},
    {"re-atom", "([^\\[\\](){}*+?|\\\\^$]|\\\\[dDwWsSbBnrtfv0.\\\\+*?()|^$\\[\\]{}/\\-]|\\[\\^?<re-member>+-?\\])"},
    {"re-count",
     "\\{([0-9]{1,3},?|0,[0-9]{1,3}|1,[1-9][0-9]{0,2}|2,([2-9]|[1-9][0-9]{1,2})|3,([3-9]|[1-9][0-9]{1,2})|[4-9],[1-9][0-9]{1,2})\\}"},
    {"re-times", "(([*+?]|<re-count>)[?]?)?"},
    {"re-0", "([\\^$]|<re-atom><re-times>)*"},
    {"re-1", "([\\^$]|(<re-atom>|<re-open><re-0>(\\|<re-0>)*\\))<re-times>)*"},
    {"re-2", "([\\^$]|(<re-atom>|<re-open><re-1>(\\|<re-1>)*\\))<re-times>)*"},
    {"re-open", "\\((\\?[:=!])?"},
};

static const struct {
    const char *name, *pattern;
    uint32_t max; /* characters; 0: any number */
    enum gram_draft first;
} formats[] = {
    {"date", "<date>", 0, GRAM_DRAFT_7},
    {"date-time", "<date>[Tt](<time>|<leap>)", 0, GRAM_DRAFT_4},
    {"duration", "P(<dur-date>(T<dur-time>)?|T<dur-time>|[0-9]+W)", 0, GRAM_DRAFT_2019},
    {"email", "(<atom>(\\.<atom>)*|<quoted>)@(<label-any>(\\.<label-any>)*|<mail-literal>)", 0, GRAM_DRAFT_4},
    {"hostname", "<label>(\\.<label>)*", 253, GRAM_DRAFT_4},
    {"idn-email", "(<idn-atom>(\\.<idn-atom>)*|<quoted>)@(<idn-label>(\\.<idn-label>)*|<mail-literal>)", 0, GRAM_DRAFT_4},
    {"ipv4", "<ipv4>", 0, GRAM_DRAFT_4},
    {"ipv6", "<ipv6>", 0, GRAM_DRAFT_4},
    {"iri", "<iri>", 0, GRAM_DRAFT_7},
    {"iri-reference", "(<iri>|<irelative>)", 0, GRAM_DRAFT_7},
    {"json-pointer", "<pointer>", 0, GRAM_DRAFT_6},
    {"regex", "<re-2>(\\|<re-2>)*", 0, GRAM_DRAFT_4},
    {"relative-json-pointer", "(0|[1-9][0-9]*)(#|<pointer>)", 0, GRAM_DRAFT_7},
    {"time", "(<time>|<leap>)", 0, GRAM_DRAFT_7},
    {"uri", "<uri>", 0, GRAM_DRAFT_4},
    {"uri-reference", "(<uri>|<relative>)", 0, GRAM_DRAFT_6},
    {"uri-template", "([!#$&(-;=?-\\[\\]_a-z~]|<percent>|<beyond>|\\{[+#./;?&=,!@|]?<variable>(,<variable>)*\\})*", 0, GRAM_DRAFT_6},
    {"uuid", "<hex>{8}-(<hex>{4}-){3}<hex>{12}", 0, GRAM_DRAFT_2019},
};

/* Times with a leap second: 23:59:60 in UTC, whatever the offset makes of it. */
static void put_leap_seconds(struct sb *b) {
    sb_puts(b, "23:59:60(\\.[0-9]+)?([Zz]|-00:00)");
    for (int minutes = -(23 * 60 + 45); minutes <= 23 * 60 + 45; minutes += 15) {
        int local = (23 * 60 + 59 + minutes + 24 * 60) % (24 * 60), offset = minutes < 0 ? -minutes : minutes;
        sb_fmt(b, "|%02d:%02d:60(\\.[0-9]+)?%s%02d:%02d", local / 60, local % 60, minutes < 0 ? "-" : "\\+", offset / 60, offset % 60);
    }
}

static void put_pattern(struct sb *b, struct str pattern);

static void put_part(struct sb *b, struct str name) {
    if (str_is(name, "leap")) put_leap_seconds(b);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (str_is(name, parts[i].name)) put_pattern(b, str_of(parts[i].pattern));
}

static void put_pattern(struct sb *b, struct str pattern) {
    for (size_t i = 0; i < pattern.n; i++) {
        size_t end = pattern.p[i] == '<' ? str_find_char(pattern, '>', i) : STR_NONE;
        if (end == STR_NONE) {
            sb_putc(b, pattern.p[i]);
        } else {
            put_part(b, str_sub(pattern, i + 1, end - i - 1));
            i = end;
        }
    }
}

bool gram_format_strings(struct strings *s, struct str name, enum gram_draft draft, struct strset *out) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!str_is(name, formats[i].name) || draft < formats[i].first) continue;
        struct sb pattern = {0};
        put_pattern(&pattern, str_of(formats[i].pattern));
        *out = strset_of(s, regex_known(s->p, pattern.p), 0, formats[i].max ? formats[i].max : STR_LONG);
        sb_free(&pattern);
        return true;
    }
    return false;
}
